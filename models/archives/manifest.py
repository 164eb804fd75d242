"""MAR-INF/MANIFEST.json: whose model this is, which version, and which files play which part."""

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from models.archives.limits import problem_of_name
from models.archives.shown import shown, shown_json
from models.errors import ConfigError
from models.model_names import NAME_RULE, is_model_name, printable
from models.text_files import read_plain

MANIFEST = "MAR-INF/MANIFEST.json"
MANIFEST_BYTES = 1 << 20
"""The largest manifest."""
_MOST_KEYS = 1000  # of one object; there are twenty that mean something

_VERSION = re.compile(r"(0|[1-9]\d{0,8})(?:\.(0|[1-9]\d{0,2}))?(?:\.(0|[1-9]\d{0,2}))?")
_HANDLER = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff:\\]{1,255}(:[A-Za-z_]\w{0,254})?")
_RUNTIMES = ("python", "python3")
_TOP_LEVEL = frozenset({
    "createdOn", "runtime", "model", "archiverVersion", "description", "license", "implementationVersion",
    "specificationVersion", "publisher", "engine",
})  # fmt: skip
FILES = ("serializedFile", "modelFile", "requirementsFile", "configFile")
"""What names files of the archive."""
_OF_MODEL = frozenset({*FILES, "modelName", "modelVersion", "handler", "extensions", "description", "version"})
_REFUSED = {"envelope": "a service envelope", "workflow": "a workflow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A manifest that was read strictly.

    Attributes:
        source: Its name for messages, e.g. ``resnet.mar/MAR-INF/MANIFEST.json``.
        text: The file's text, to find lines.
        model_name: ``modelName``.
        version: ``modelVersion`` as a number, see `version_number`.
        version_name: ``modelVersion``.
        handler: A built-in's name, or ``file.py`` with an optional ``:function``.
        files: ``serializedFile``, ``modelFile``, ``requirementsFile`` and ``configFile``, as far as given: relative
            paths that do not leave the archive; see `located`.
        notes: What is not known, in sentences.
    """

    source: str
    text: str
    model_name: str
    version: int
    version_name: str
    handler: str
    files: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def place_of(self, key: str) -> str:
        """Where a key stands, for people, e.g. ``MANIFEST.json:7``."""
        line = _line_of(self.text, key)
        return "MANIFEST.json" if line is None else f"MANIFEST.json:{line}"


def read_manifest(directory: Path, archive: str) -> Manifest:
    """Read the manifest of an unpacked archive.

    Args:
        directory: With MAR-INF in it.
        archive: Its name, for messages.

    Raises:
        ConfigError: It is no plain file, too large, or as `parse_manifest`.
        OSError: It cannot be read.
    """
    source = f"{archive}/{MANIFEST}"
    return parse_manifest(read_plain(directory / MANIFEST, source, MANIFEST_BYTES), source)


def parse_manifest(content: bytes, source: str) -> Manifest:
    """Read a manifest.

    Raises:
        ConfigError: It is no JSON, or a value is missing or impossible.
    """
    if len(content) > MANIFEST_BYTES:
        raise ConfigError(source=source, field="size", found="a large file", expected=f"at most {MANIFEST_BYTES} bytes")
    return _Reader(content, source).manifest()


def version_number(text: str) -> int | None:
    """The number of a version's name, None if it has none.

    ``2``, ``2.0`` and ``2.0.0`` are 2; another ``a.b`` or ``a.b.c`` is a x 1,000,000 + b x 1,000 + c, so that all of
    them are ordered among each other.
    """
    match = _VERSION.fullmatch(text)
    if match is None:
        return None
    major, minor, patch = (int(group or 0) for group in match.groups())
    return major * 1_000_000 + minor * 1_000 + patch if minor or patch else major


def located(manifest: Manifest, directory: Path) -> Manifest:
    """The manifest with the names that its files have in the model's directory.

    Raises:
        ConfigError: One is not there.
    """
    files = {key: _located(manifest, directory, key, name) for key, name in manifest.files.items()}
    script = _script(manifest.handler)
    if script.endswith(".py"):
        _located(manifest, directory, "handler", script)
    return replace(manifest, files=files)


def _located(manifest: Manifest, directory: Path, key: str, name: str) -> str:
    found = file_in_archive(directory, name)
    if found is None:
        raise ConfigError(
            source=manifest.source,
            line=_line_of(manifest.text, key),
            field=f"model.{key}",
            found=f"no file {shown(name)}",
            expected="it in the archive, beside MAR-INF; pack it again",
        )
    return found


def file_in_archive(directory: Path, name: str) -> str | None:
    """The name that a file of a manifest has in the archive; None if it is not there.

    Args:
        directory: Of the archive's files.
        name: As `Manifest.files` or the manifest itself has it, with directories or with those that it had where the
            archive was packed: torch-model-archiver packs files without them.
    """
    plain = name.removeprefix("./")
    names = [each for each in (plain, plain.rpartition("/")[2]) if not problem_of_name(each)]
    return next((each for each in names if (directory / each).exists()), None)


def handler_of(manifest: Manifest, directory: Path) -> str:
    """The handler as ``file.py[:function]`` if the archive has its file, else a built-in's name."""
    script, colon, function = _script(manifest.handler), *manifest.handler.partition(":")[1:]
    if not script.endswith(".py") and (directory / f"{script}.py").is_file():
        script += ".py"  # torch-model-archiver adds the suffix when it packs the file, not in the manifest
    return f"{script}{colon}{function}"


def _script(handler: str) -> str:
    return handler.partition(":")[0].rpartition("/")[2]


class _Reader:
    def __init__(self, content: bytes, source: str) -> None:
        self._source = source
        self._text = self._decoded(content)
        self._notes: list[str] = []

    def manifest(self) -> Manifest:
        document = self._parsed()
        self._check_keys(document, _TOP_LEVEL, "")
        model = document.get("model")
        if not isinstance(model, dict):
            raise self._error("model", "nothing" if model is None else "no object", "an object with modelName, ...")
        self._check_keys(model, _OF_MODEL, "model.")
        self._check_runtime(document.get("runtime", "python"))
        name, version, handler = (self._word(model, key) for key in ("modelName", "modelVersion", "handler"))
        if not is_model_name(name):
            raise self._error("model.modelName", shown(name), NAME_RULE)
        if not _HANDLER.fullmatch(handler):
            raise self._error("model.handler", shown(handler), "a built-in handler, or file.py[:function]")
        return Manifest(
            source=self._source,
            text=self._text,
            model_name=name,
            version=self._number(version),
            version_name=version,
            handler=handler,
            files={key: self._file_name(model, key) for key in FILES if model.get(key)},
            notes=tuple(self._notes),
        )

    def _decoded(self, content: bytes) -> str:
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ConfigError(
                source=self._source, field="encoding", found=f"the byte 0x{content[error.start]:02x}", expected="UTF-8"
            ) from error

    def _parsed(self) -> dict[str, object]:
        try:
            document = json.loads(self._text, object_pairs_hook=self._object)
        except json.JSONDecodeError as error:
            raise ConfigError(
                source=self._source, line=error.lineno, field="(top level)", found=error.msg, expected="JSON"
            ) from error
        except (ValueError, RecursionError) as error:  # numbers of thousands of digits, thousands of levels
            raise self._error("(top level)", "a value that cannot be read", "an ordinary manifest") from error
        if not isinstance(document, dict):
            raise self._error("(top level)", "no object", 'an object with "model"')
        return document

    def _object(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        """Every key once: two readers of a file in which one is repeated may see different models."""
        if len(pairs) > _MOST_KEYS:
            raise self._error("(top level)", f"an object with {len(pairs)} keys", f"at most {_MOST_KEYS}")
        table: dict[str, object] = {}
        for name, value in pairs:
            if name in table:
                raise self._error(printable(name[:80]), "it more than once", "each key once")
            table[name] = value
        return table

    def _check_keys(self, table: Mapping[str, object], known: frozenset[str], prefix: str) -> None:
        for key in table:
            if key in _REFUSED and table[key]:
                expected = f"no such key: {_REFUSED[key]} is not supported"
                raise self._error(f"{prefix}{key}", shown_json(table[key]), expected)
            if key not in known and key not in _REFUSED:
                similar = difflib.get_close_matches(key, known, n=1, cutoff=0.8)
                hint = f"; did you mean {similar[0]}?" if similar else ""
                line = _line_of(self._text, key) or 1
                self._notes.append(
                    f"{self._source}:{line}: {prefix}{printable(key[:80])}: has no effect: unknown{hint}"
                )

    def _check_runtime(self, runtime: object) -> None:
        if runtime not in _RUNTIMES:
            raise self._error("runtime", shown_json(runtime), f"one of {', '.join(_RUNTIMES)}")

    def _word(self, model: Mapping[str, object], key: str) -> str:
        value = model.get(key)
        if not isinstance(value, str) or not value:
            found = "nothing" if key not in model else shown_json(value)
            raise self._error(f"model.{key}", found, "a text that is not empty")
        return value

    def _number(self, version: str) -> int:
        number = version_number(version)
        if number is None:
            expected = 'a number, or two or three with dots and the later ones below 1000, e.g. "1.0" or "2.1.3"'
            raise self._error("model.modelVersion", shown(version), expected)
        return number

    def _file_name(self, model: Mapping[str, object], key: str) -> str:
        name = self._word(model, key).removeprefix("./")
        if problem := problem_of_name(name):
            raise self._error(f"model.{key}", f"the file {shown(name)} {problem}", "the name of a file in the archive")
        return name

    def _error(self, path: str, found: str, expected: str) -> ConfigError:
        line = _line_of(self._text, path.rpartition(".")[2])
        return ConfigError(source=self._source, line=line, field=path, found=found, expected=expected)


def _line_of(text: str, key: str) -> int | None:
    found = re.search(rf'"{re.escape(key)}"\s*:', text)
    return None if found is None else text.count("\n", 0, found.start()) + 1
