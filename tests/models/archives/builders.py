"""Archives for tests: good ones, and each kind of bad one."""

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from models.archives.folders import PrivateFolders
from models.archives.known_names import KnownNames
from models.archives.manifest import MANIFEST
from models.archives.store import archive_places
from models.model_entry import ModelEntry
from models.spec import ModelSpec

HANDLER = "def handle(data, context):\n    return [b'' for _ in data or ()]\n"


def manifest(name: str = "m", version: str = "1.0", **model: object) -> str:
    """A manifest as torch-model-archiver writes it; `model` adds keys, or with None removes them."""
    entries = {"modelName": name, "handler": "handler.py", "modelVersion": version, **model}
    kept = {key: value for key, value in entries.items() if value is not None}
    document = {"createdOn": "01/01/2024 00:00:00", "runtime": "python", "model": kept, "archiverVersion": "0.12.0"}
    return json.dumps(document, indent=2)


def files(text: str | None = None, **more: str) -> dict[str, str]:
    """What a small archive holds; `more` with ``__`` for dots in names."""
    named = {name.replace("__", "."): content for name, content in more.items()}
    return {"handler.py": HANDLER, **named, MANIFEST: manifest() if text is None else text}


def configured(yaml: str, **model: object) -> dict[str, str]:
    """What an archive with a model-config.yaml holds."""
    text = manifest(configFile="model-config.yaml", **model)
    return {"handler.py": HANDLER, "model-config.yaml": yaml, MANIFEST: text}


def write_zip(path: Path, content: Mapping[str, str | bytes]) -> Path:
    """A .mar as torch-model-archiver makes it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return path


def write_tar(path: Path, content: Mapping[str, str | bytes], *, prefix: str = "m/") -> Path:
    """A .tar.gz as torch-model-archiver makes it: everything in a directory of the model's name."""
    members = [
        (tar_info(f"{prefix}{name}"), data.encode() if isinstance(data, str) else data)
        for name, data in content.items()
    ]
    return write_tar_members(path, members)


def write_tar_members(path: Path, members: Sequence[tuple[tarfile.TarInfo, bytes]]) -> Path:
    """A .tar.gz of these members, whatever they are."""
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def tar_info(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    """A member of a tar file."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def write_directory(path: Path, content: Mapping[str, str | bytes]) -> Path:
    """An archive that was never packed."""
    for name, data in content.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def zip_with(path: Path, name: str, *, mode: int = 0, data: bytes = b"x") -> Path:
    """A .mar with one more member, whose name is taken as it is and whose Unix mode is `mode`."""
    write_zip(path, files())
    with zipfile.ZipFile(path, "a") as archive:
        info = zipfile.ZipInfo("placeholder")
        info.filename = info.orig_filename = name
        info.external_attr = mode << 16
        archive.writestr(info, data)
    return path


def patched(path: Path, old: bytes, new: bytes) -> Path:
    """The file with all occurrences of `old` replaced by as many bytes of `new`."""
    assert len(old) == len(new)
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))
    return path


def gzip_of(path: Path, data: bytes) -> Path:
    """A compressed file."""
    path.write_bytes(gzip.compress(data, 1))
    return path


def entries_of(store: Path, names: KnownNames | None = None) -> dict[str, ModelEntry]:
    """All models of a store, unpacked beside it."""
    places = archive_places(store, PrivateFolders(store.parent / "work"), names or KnownNames())
    return {place.name: place.read() for place in places}


def folders_in(work: Path) -> set[str]:
    """What archives and their requirements were unpacked into, and what was left of that."""
    return {path.name for path in work.iterdir() if not path.name.startswith((".lock", ".in-use-"))}


def entry_of(store: Path) -> ModelEntry:
    """The only model of a store."""
    (entry,) = entries_of(store).values()
    return entry


def spec_of(store: Path) -> ModelSpec:
    """The only version of the only model of a store, which must be fine."""
    entry = entry_of(store)
    assert entry.problems == ()
    (spec,) = entry.versions
    return spec


def problem_of(store: Path) -> str:
    """The only problem of the only model of a store, which must have one."""
    entry = entry_of(store)
    assert entry.versions == ()
    (problem,) = entry.problems
    return str(problem)
