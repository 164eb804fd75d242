"""Where each value of an effective configuration comes from.

The sources are words for people: ``config.pbtxt:12``, ``shoal.toml:3``, ``1/model.onnx``, ``directory``, ``default``.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from models.config_lines import ConfigLines
from models.pbtxt import ConfigText
from models.side_file import SideFile

DEFAULT = "default"
_DECIDED_BY = {"backend": "platform", "platform": "backend"}  # whichever of the two the file leaves out
_SHOAL = "shoal"  # before the field paths of what only shoal.toml can say


class Provenance:
    """Watches a configuration while it is completed.

    Args:
        text: The configuration as the file has it, before anything was added; later calls look at its message again.
    """

    def __init__(self, text: ConfigText) -> None:
        self._text = text
        self._given = dict(_set_fields(text.message))
        self._seen = self._given
        self._added: dict[str, str] = {}

    def completed_from(self, source: str) -> None:
        """What was added or changed since the last call, or since the beginning, comes from `source`."""
        now = dict(_set_fields(self._text.message))
        self._added.update({path: source for path, value in now.items() if self._seen.get(path) != value})
        self._seen = now

    def sources(self, config: Mapping[str, object]) -> dict[str, str]:
        """The source of each value of a shown configuration, by field path."""
        return {path: self._source(path) for path, _ in leaves(config)}

    def _source(self, path: str) -> str:
        lines = self._text.lines
        if path in self._added:
            deciding = _DECIDED_BY.get(path, "")
            is_decided = self._added[path] == DEFAULT and lines.mentions(deciding)
            return place(lines, deciding) if is_decided else self._added[path]
        return place(lines, path) if path in self._given or lines.mentions(path) else DEFAULT


def sources_of_side_file(side: SideFile, text: ConfigText, effective: Mapping[str, object]) -> dict[str, str]:
    """The source of each value that shoal.toml can give, by field path after ``shoal.``.

    Args:
        side: The parsed file.
        text: config.pbtxt, which some of its values default to.
        effective: The values in force, as tables of shoal.toml.
    """
    given = dict(leaves(side.tables.model_dump(mode="json", exclude_unset=True)))
    sources: dict[str, str] = {}
    for path, value in leaves(effective):
        inherited = _inherited(path, value, text.lines)
        if path in given:
            sources[f"{_SHOAL}.{path}"] = place(side.lines, path)
        else:
            sources[f"{_SHOAL}.{path}"] = place(text.lines, inherited) if inherited else DEFAULT
    return sources


def place(lines: ConfigLines, path: str) -> str:
    """The file's name, without the model's, and the line of the field if it has one."""
    name, line = re.split("/|: ", lines.source)[-1], lines.line_of(path)
    return f"{name}:{line}" if line else name


def _inherited(path: str, value: object, lines: ConfigLines) -> str:
    """The field of config.pbtxt that decides about a value of shoal.toml; empty if none does."""
    table, _, name = path.partition(".")
    if table != "batching":
        return ""
    candidates = [name.replace("parameters.", "dynamic_batching.", 1)] if name.startswith("parameters.") else []
    if name == "policy":
        candidates = [{"triton": "dynamic_batching", "single": "max_batch_size"}.get(str(value), "")]
    return next((candidate for candidate in candidates if _is_given(candidate, lines)), "")


def _is_given(path: str, lines: ConfigLines) -> bool:
    return lines.mentions(path) or lines.mentions(f"{path}[0]")


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Paths and values of everything in JSON-ready values that is neither an object nor a list; empty ones count."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from leaves(inner, f"{path}.{name}".lstrip("."))
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{index}]")
    else:
        yield path, value


def _set_fields(message: Any, path: str = "") -> Iterator[tuple[str, object]]:
    """Paths and values of the scalars of a message that are set; entries of maps are named by their keys."""
    for field, value in message.ListFields():
        here = f"{path}.{field.name}".lstrip(".")
        if field.message_type is None:
            elements = enumerate(value) if field.is_repeated else ()
            yield from ((f"{here}[{index}]", element) for index, element in elements)
            if not field.is_repeated:
                yield here, value
        else:
            for step, inner in _messages(field, value):
                yield from _set_fields(inner, here + step) if hasattr(inner, "ListFields") else [(here + step, inner)]


def _messages(field: Any, value: Any) -> Iterator[tuple[str, Any]]:
    if field.message_type.GetOptions().map_entry:
        yield from ((f".{key}", value[key]) for key in value)
    elif field.is_repeated:
        yield from ((f"[{index}]", element) for index, element in enumerate(value))
    else:
        yield "", value
