"""What kind of file a model is, told by its content; nothing in it is executed or unpickled."""

import enum
import json
import re
import zipfile
from pathlib import Path

from backends.errors import LoadError

# What torch.save wrote before version 1.6: a pickle of protocol 2 that begins with this number.
_LEGACY_START = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"
_PICKLED_OBJECT = "data/constants/opaque_obj_"
# PyTorch has sympy evaluate the sizes in an exported program, by Python's `eval`. In these words a size can be written,
# e.g. Add(Symbol('s0', integer=True), Integer(1)), and no attribute or function of Python be reached.
_HARMLESS_SIZE = re.compile(
    r"(?!.*__)(?: [A-Z]\w* | [a-z_]\w*+(?!\s*\() | '\w*' | \d+(?:\.\d+)? | [\s()+\-*/%,<>=&|~] )*+",
    re.ASCII | re.VERBOSE,
)


class Format(enum.Enum):
    """Files that PyTorch writes. The value names it in messages."""

    TORCHSCRIPT = "a TorchScript file"
    EXPORTED = "a torch.export program"
    PICKLED = "a file of torch.save"


def detect_format(file: Path, where: str) -> Format:
    """Look into a model file.

    Args:
        file: It.
        where: Begins messages: model and version.

    Raises:
        LoadError: It is none that can be served; says what it looks like.
    """
    if not zipfile.is_zipfile(file):
        with file.open("rb") as stream:
            start = stream.read(len(_LEGACY_START))
        if start == _LEGACY_START:
            return Format.PICKLED
        found = "a Python pickle that torch.save did not write" if start[:1] == b"\x80" else f"bytes {start[:8]!r}"
        raise _refused(file, where, found)
    members = _members(file)
    if any(name.startswith("data/aotinductor/") for name in members):
        raise _refused(file, where, "a package of AOTInductor, which holds machine code")
    if {"archive_format", "serialized_exported_program.json"} & members.keys():
        return Format.EXPORTED
    if "constants.pkl" in members and any(name.startswith("code/") for name in members):
        return Format.TORCHSCRIPT
    if "data.pkl" in members:
        return Format.PICKLED
    raise _refused(file, where, f"a zip archive with {', '.join(sorted(members)[:3]) or 'nothing'}")


def check_exported(file: Path, where: str) -> None:
    """Refuse an exported program that could run code while PyTorch reads it.

    Raises:
        LoadError: It holds objects that are no tensors, or sizes that are more than arithmetic; names the flag.
    """
    members = _members(file)
    pickled = [name for name in members if name.startswith(_PICKLED_OBJECT)]
    if pickled:
        raise untrusted(file, where, f"objects that are no tensors ({Path(pickled[0]).name})")
    with zipfile.ZipFile(file) as archive:
        for name, member in members.items():
            is_graph = name.startswith("models/") or name == "serialized_exported_program.json"
            if is_graph and name.endswith(".json") and not _has_harmless_sizes(archive.read(member)):
                raise untrusted(file, where, f"a size in {Path(name).name} that is no plain arithmetic")


def untrusted(file: Path, where: str, found: str) -> LoadError:
    """The refusal of a file that could run any code while it is read."""
    return LoadError(
        f"{where}: {file.name} holds {found}; reading it could run any code, so it is refused. Save the tensors alone "
        "(torch.save(module.state_dict(), ...)), or start with --trust-pickled-models=true if you trust its author"
    )


def _members(file: Path) -> dict[str, str]:
    """Full names in the archive by their names without its root directory, which can have any name."""
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
    roots = {name.split("/", 1)[0] for name in names}
    has_root = len(roots) == 1 and all("/" in name for name in names)
    return {name.split("/", 1)[1] if has_root else name: name for name in names}


def _has_harmless_sizes(graph: bytes) -> bool:
    pending: list[object] = [json.loads(graph)]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        elif isinstance(value, dict):
            expression = value.get("expr_str", "")
            if isinstance(expression, str) and not _HARMLESS_SIZE.fullmatch(expression):
                return False
            pending += value.values()
    return True


def _refused(file: Path, where: str, found: str) -> LoadError:
    kinds = ", ".join(kind.value for kind in Format)
    return LoadError(f"{where}: {file.name} is {found}, expected {kinds}")
