"""What `shoal check` tells about broken models: every problem, with its place and the line to write."""

from pathlib import Path

import onnx
import pytest

from backends.placing import Machine
from backends.ports import Placement
from gateway.repository_check import Report, check_places
from models.findings import Finding, Severity
from models.repository import Repository
from tests.gateway.check.broken_models import BATCHED, BROKEN, PBTXT, Broken, Content, fake, onnx_model
from tests.models.builders import FAKE, edited


def write(root: Path, files: dict[str, Content], model: str = "m") -> None:
    for name, content in files.items():
        path = root / model / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        match content:
            case onnx.ModelProto():
                onnx.save(content, path)
            case bytes():
                path.write_bytes(content)
            case str() if not name.endswith("/"):
                path.write_text(content, encoding="utf-8")


def check(root: Path, *, allow_cpu: bool = False) -> Report:
    machine = Machine(gpus={}, defaults=Placement(cores=2, cache_dir=root), allow_cpu=allow_cpu)
    return check_places(Repository([root]).places(), machine)


def errors(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.severity is Severity.ERROR]


def test_there_are_at_least_forty_broken_models() -> None:
    assert len(BROKEN) >= 40


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_the_only_mistake_is_told_with_its_place_and_the_line_to_write(tmp_path: Path, broken: Broken) -> None:
    write(tmp_path, dict(broken.files))

    (error,) = errors(check(tmp_path))

    place = error.file if error.line is None else f"{error.file}:{error.line}"
    assert (place.removeprefix("m/"), error.field) == (broken.place, broken.field)
    assert broken.found in error.found
    assert broken.expected in error.expected
    assert broken.fix in error.fix or broken.fix in error.expected


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_no_message_shows_a_path_of_the_machine(tmp_path: Path, broken: Broken) -> None:
    write(tmp_path, dict(broken.files))

    findings = check(tmp_path).findings

    assert findings
    assert not any(str(tmp_path) in f"{finding}" for finding in findings)


def test_all_problems_of_a_model_are_told_at_once(tmp_path: Path) -> None:
    config = edited("size: 8", "size: -1").replace("[ 16 ]", "[ 0 ]") + 'name: "n"\nsequence_batching { }\n'
    write(tmp_path, fake(config, '[batching]\npolcy = "x"\noversize = "no"\n[preprocessing]\ncrop = 0'))

    fields = {(error.file, error.field) for error in errors(check(tmp_path))}

    assert fields == {
        *(("m/config.pbtxt", field) for field in ("max_batch_size", "input[0].dims[0]", "output[0].dims[0]")),
        *(("m/config.pbtxt", field) for field in ("name", "sequence_batching")),
        *(("m/shoal.toml", field) for field in ("batching.polcy", "batching.oversize", "preprocessing.crop")),
    }


def test_all_unknown_fields_are_told_at_once_and_that_the_rest_was_not_checked(tmp_path: Path) -> None:
    write(tmp_path, fake('backend: "fake"\ndynamic_batch { a: [ { b: "}" } ] }\nmax_batch_sise: 8\ninput { dim: 0 }'))

    report = check(tmp_path)

    assert [(error.line, error.field) for error in errors(report)] == [
        (2, "dynamic_batch"),
        (3, "max_batch_sise"),
        (4, "input[0].dim"),
    ]
    assert ["were not checked" in finding.found for finding in report.findings] == [False, False, False, True]


def test_dims_and_largest_batch_of_a_model_without_batches_are_told_together(tmp_path: Path) -> None:
    broken = BROKEN["dims without the batch dimension"]
    config = str(broken.files[PBTXT]).replace("max_batch_size: 0", "max_batch_size: 100")
    write(tmp_path, {**broken.files, PBTXT: config})

    fixes = [error.fix for error in errors(check(tmp_path))]

    assert fixes == ["max_batch_size: 0", "dims: [ 1, 3, 512, 512 ]"]


def test_the_line_to_write_makes_a_reshaping_model_one_that_loads(tmp_path: Path) -> None:
    broken = BROKEN["batches of one, with a reshape"]
    write(tmp_path, {**broken.files, PBTXT: str(broken.files[PBTXT]).replace("max_batch_size: 1", broken.fix)})

    assert check(tmp_path).findings == []


def test_a_model_that_does_what_its_errors_say_has_none_left(tmp_path: Path) -> None:
    broken = BROKEN["dims without the batch dimension"]
    write(tmp_path, {**broken.files, PBTXT: str(broken.files[PBTXT]).replace("[ 3, 512", "[ 1, 3, 512")})

    assert check(tmp_path).findings == []


def test_what_has_no_effect_is_a_warning(tmp_path: Path) -> None:
    write(tmp_path, fake(FAKE + "optimization {\n  eager_batching: true\n}", **{"01/": ""}))

    report = check(tmp_path)

    assert [(finding.severity, finding.file, finding.line, finding.field) for finding in report.findings] == [
        (Severity.WARNING, "m/01", None, ""),
        (Severity.WARNING, "m/config.pbtxt", 6, "optimization.eager_batching"),
    ]


def test_a_problem_of_one_version_names_it(tmp_path: Path) -> None:
    write(tmp_path, {PBTXT: "version_policy { all { } }", "1/model.onnx": BATCHED, "2/model.onnx": b"junk"})

    (error,) = errors(check(tmp_path))

    assert (error.version, error.file) == (2, "m/2/model.onnx")


def test_a_model_in_two_repositories_is_told(tmp_path: Path) -> None:
    for root in ("a", "b"):
        write(tmp_path / root, fake(FAKE))

    report = check_places(Repository([tmp_path / "a", tmp_path / "b"]).places(), Machine(gpus={}, defaults=Placement()))

    assert ["found in 2 repositories" in finding.found or "in 2 repositories" in finding.found
            for finding in report.findings] == [True]  # fmt: skip


def test_kind_gpu_passes_where_the_cpu_is_allowed(tmp_path: Path) -> None:
    write(tmp_path, onnx_model("max_batch_size: 4\ninstance_group { kind: KIND_GPU }", BATCHED))

    assert errors(check(tmp_path, allow_cpu=True)) == []


def test_a_file_that_is_being_copied_is_told(tmp_path: Path) -> None:
    write(tmp_path, {**fake(FAKE), "1/weights.bin.part": b""})

    (warning,) = check(tmp_path).findings

    assert (warning.severity, warning.file) == (Severity.WARNING, "m/1/weights.bin.part")


def test_labels_that_do_not_count_the_classes_are_a_warning(tmp_path: Path) -> None:
    write(tmp_path, fake(FAKE, 'labels = "labels.txt"', **{"labels.txt": "cat\ndog\n"}))

    (warning,) = check(tmp_path).findings

    assert (warning.file, warning.line, warning.found) == ("m/shoal.toml", 1, "2 labels for 16 classes")
