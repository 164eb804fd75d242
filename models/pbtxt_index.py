"""Field path -> position, for protobuf text format.

`text_format` gives positions for syntax errors only, so the same tokenizer walks the text a second time, led by the
schema. The walk ends quietly at the first thing that it cannot follow: the real parser refuses the same text and its
sentence is the better one.
"""

import contextlib
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf import text_format  # type: ignore[import-untyped]

from models.config_lines import TOP_LEVEL

Descriptor = Any  # protobuf's generated code is untyped here
_QUOTES = "\"'"
_OPENING, _CLOSING = frozenset("{<["), frozenset("}>]")


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One mention of a field.

    Attributes:
        line: 1-based line of the field's name, or of the element inside ``[ ]``.
        column: 1-based column of the same.
        path: Field path, e.g. ``input[0].dims[1]``. Entries of a map count like those of a list.
        message: Descriptor of the message around the field; None where no field name could be read.
        field: Descriptor of the field; None if the message has no such field.
    """

    line: int
    column: int
    path: str
    message: Descriptor | None
    field: Descriptor | None

    @property
    def is_unknown(self) -> bool:
        """Whether it is a name that the message around it has no field for."""
        return self.message is not None and self.field is None


class PbtxtIndex:
    """All mentions of fields in one text, in the order of the text.

    Attributes:
        occurrences: Ascending by position.
        line_by_field: First line by field path; what is in maps also by its key, as in JSON.
    """

    def __init__(self, text: str, schema: Descriptor) -> None:
        keys: dict[str, str] = {}
        self.occurrences = _walk(text, schema, keys)
        self.line_by_field: dict[str, int] = {}
        for occurrence in self.occurrences:
            self.line_by_field.setdefault(occurrence.path, occurrence.line)
            if keys:
                self.line_by_field.setdefault(_by_key(occurrence.path, keys), occurrence.line)

    def unknown(self) -> list[Occurrence]:
        """The mentions of fields that there are not."""
        return [occurrence for occurrence in self.occurrences if occurrence.is_unknown]

    def at(self, line: int, column: int) -> Occurrence | None:
        """The last mention that starts at or before a 1-based position."""
        after = bisect_right(self.occurrences, (line, column), key=lambda found: (found.line, found.column))
        return self.occurrences[after - 1] if after else None


def _by_key(path: str, keys: Mapping[str, str]) -> str:
    """``parameters[0].value.string_value`` as ``parameters.KEY.string_value``."""
    for entry, key in keys.items():  # no map of the schema is in another one
        if path.startswith(f"{entry}.value"):
            return f"{entry.rpartition('[')[0]}.{key}{path[len(entry) + len('.value') :]}"
    return path


def _walk(text: str, schema: Descriptor, keys: dict[str, str]) -> list[Occurrence]:
    occurrences: list[Occurrence] = []
    with contextlib.suppress(text_format.ParseError):  # the text is wrong from there on; see the module's docstring
        walker = _Walker(text_format.Tokenizer(text.split("\n")), occurrences, keys)
        walker.message("", schema, end="")
    return occurrences


class _Walker:
    """Recursive descent over one text; its depth is the schema's, because unknown fields are skipped."""

    def __init__(self, tokens: Any, occurrences: list[Occurrence], keys: dict[str, str]) -> None:
        self._tokens = tokens
        self._occurrences = occurrences
        self._keys = keys

    def message(self, path: str, schema: Descriptor, end: str) -> None:
        seen: dict[str, int] = {}
        while not self._tokens.TryConsume(end):
            self._field(path, schema, seen)

    def _field(self, parent: str, schema: Descriptor, seen: dict[str, int]) -> None:
        here = self._tokens.ParseError("")
        try:
            name = self._tokens.ConsumeIdentifier()
        except text_format.ParseError:
            self._record(here, parent or TOP_LEVEL, None, None)
            raise
        path = f"{parent}.{name}" if parent else name
        field = schema.fields_by_name.get(name)
        self._tokens.TryConsume(":")
        if field is None:
            self._record(here, path, schema, None)
            self._skip()
        elif not field.is_repeated:
            self._value(here, path, field)
        elif self._tokens.TryConsume("["):
            self._record(here, path, schema, field)
            self._list(path, field, seen)
        else:
            self._element(here, path, field, seen)
        if not self._tokens.TryConsume(","):
            self._tokens.TryConsume(";")

    def _skip(self) -> None:
        """The value of an unknown field: up to where its brackets are closed."""
        depth = 0
        while True:
            token = self._tokens.token
            depth += (token in _OPENING) - (token in _CLOSING)
            if self._tokens.AtEnd() or depth < 0:
                raise self._tokens.ParseError("value missing")
            if token[0] in _QUOTES:
                self._tokens.ConsumeByteString()
            else:
                self._tokens.NextToken()
            if depth == 0:
                return

    def _list(self, path: str, field: Descriptor, seen: dict[str, int]) -> None:
        while not self._tokens.TryConsume("]"):
            self._element(self._tokens.ParseError(""), path, field, seen)
            self._tokens.TryConsume(",")

    def _element(self, here: Any, path: str, field: Descriptor, seen: dict[str, int]) -> None:
        index = seen.get(path, 0)
        seen[path] = index + 1
        self._value(here, f"{path}[{index}]", field)

    def _value(self, here: Any, path: str, field: Descriptor) -> None:
        self._record(here, path, field.containing_type, field)
        if self._tokens.AtEnd():
            raise self._tokens.ParseError("value missing")
        if field.message_type is None:
            if field.name == "key" and field.containing_type.GetOptions().map_entry:
                self._keys[path.removesuffix(".key")] = self._tokens.token.strip(_QUOTES)
            self._scalar()
        elif self._tokens.TryConsume("<"):
            self.message(path, field.message_type, end=">")
        else:
            self._tokens.Consume("{")
            self.message(path, field.message_type, end="}")

    def _scalar(self) -> None:
        if self._tokens.token[0] in _QUOTES:
            self._tokens.ConsumeByteString()  # adjacent strings are one value
        else:
            self._tokens.NextToken()

    def _record(self, here: Any, path: str, message: Descriptor | None, field: Descriptor | None) -> None:
        self._occurrences.append(Occurrence(here.GetLine(), here.GetColumn(), path, message, field))
