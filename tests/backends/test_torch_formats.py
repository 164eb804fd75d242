"""What files look like, without PyTorch: archives with the members that it writes."""

import json
import zipfile
from pathlib import Path

import pytest

from backends.errors import LoadError
from backends.torch_engine.formats import Format, check_exported, detect_format


def archive(directory: Path, **members: str) -> Path:
    file = directory / "model.pt"
    with zipfile.ZipFile(file, "w") as written:
        for name, content in members.items():
            written.writestr(name, content)
    return file


def program(directory: Path, size: str, **more: str) -> Path:
    graph = json.dumps({"graph": [{"sizes": [{"as_expr": {"expr_str": size}}]}]})
    return archive(directory, **{"m/archive_format": "pt2", "m/models/model.json": graph}, **more)


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        (["m/data.pkl", "m/constants.pkl", "m/code/__torch__.py"], Format.TORCHSCRIPT),
        (["m/data.pkl", "m/data/0", "m/version"], Format.PICKLED),
        (["m/archive_format", "m/models/model.json"], Format.EXPORTED),
        (["serialized_exported_program.json", "version"], Format.EXPORTED),
    ],
    ids=["script", "state-dict", "exported", "exported-2.6"],
)
def test_archives_are_told_by_their_members(tmp_path: Path, members: list[str], expected: Format):
    file = archive(tmp_path, **dict.fromkeys(members, ""))

    assert detect_format(file, "model 'm'") is expected


@pytest.mark.parametrize(
    ("members", "found"),
    [
        (["m/archive_format", "m/data/aotinductor/model/x.so"], "a package of AOTInductor, which holds machine code"),
        (["word/document.xml"], "a zip archive with document.xml"),
    ],
)
def test_other_archives_are_refused_with_what_they_are(tmp_path: Path, members: list[str], found: str):
    file = archive(tmp_path, **dict.fromkeys(members, ""))

    with pytest.raises(LoadError, match=rf"model\.pt is {found}, expected a TorchScript file"):
        detect_format(file, "model 'm'")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"\x80\x04K\x01.", "a Python pickle that torch.save did not write"),
        (b"\x08\x07onnx", "bytes b'"),
        (b"", "bytes b''"),
    ],
    ids=["pickle", "other", "empty"],
)
def test_other_files_are_refused_with_what_they_are(tmp_path: Path, content: bytes, found: str):
    (tmp_path / "model.pt").write_bytes(content)

    with pytest.raises(LoadError, match=found):
        detect_format(tmp_path / "model.pt", "model 'm'")


@pytest.mark.parametrize(
    "size", ["Symbol('s0', positive=True, integer=True)", "Add(Integer(1), Symbol('s0'))", "s0*2 + 1"]
)
def test_sizes_that_are_arithmetic_are_accepted(tmp_path: Path, size: str):
    check_exported(program(tmp_path, size), "model 'm'")


@pytest.mark.parametrize(
    "size",
    [
        "__import__('os').system('id')",
        "eval ('a')",
        "getattr(Integer(1), 'numerator')",
        "Integer(1).numerator",
        "exec(chr(97)+chr(98))",
        "[x for x in y]",
    ],
)
def test_sizes_that_could_run_code_are_refused(tmp_path: Path, size: str):
    with pytest.raises(LoadError, match=r"a size in model\.json that is no plain arithmetic.*--trust-pickled-models"):
        check_exported(program(tmp_path, size), "model 'm'")


def test_pickled_objects_in_a_program_are_refused(tmp_path: Path):
    file = program(tmp_path, "s0", **{"m/data/constants/opaque_obj_0": ""})

    with pytest.raises(LoadError, match=r"objects that are no tensors \(opaque_obj_0\)"):
        check_exported(file, "model 'm'")
