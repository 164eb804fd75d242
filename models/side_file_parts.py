"""What is left of a shoal.toml with mistakes, so that the rest of it is checked too. Nothing is served with that."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from models.side_file import SideFile, side_file_of

_KEY_BY_KEY = frozenset({"batching", "execution"})  # a key of another table means little without its neighbours
_Part = tuple[str, ...]
_WITH: Mapping[_Part, _Part] = {  # what means something else without the part that is left out
    ("preprocessing",): ("golden",),
    ("output",): ("labels",),
    ("batching", "policy"): ("batching", "parameters"),
}


class Parts(NamedTuple):
    """The parts that are as they should be.

    Attributes:
        side: A side file of them.
        left_out: Names of what nothing else was compared with: tables, and keys that were left out with others.
    """

    side: SideFile
    left_out: tuple[str, ...]


def good_parts(text: str, source: str) -> Parts:
    """Leave out what cannot be; nothing is left of a text that does not parse. Arguments as of `parse_side_file`."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError):
        return Parts(side_file_of({}, "", source), ("all of shoal.toml",))
    left_out: dict[_Part, None] = {}
    while True:  # each round leaves something out, and an empty document is a good one
        try:
            return Parts(side_file_of(document, text, source), tuple(map(".".join, left_out)))
        except ValidationError as error:
            wrong = [_part(detail["loc"]) for detail in error.errors(include_url=False)]
            for part in (*wrong, *(_WITH[part] for part in wrong if part in _WITH)):
                value = _value(document, part)
                document = _without(document, part)
                if isinstance(value, Mapping) or (value is not None and part not in wrong):
                    left_out[part] = None
        except (ValueError, RecursionError):  # numbers of thousands of digits
            return Parts(side_file_of({}, "", source), ("all of shoal.toml",))


def _part(location: Sequence[int | str]) -> _Part:
    return tuple(map(str, location[: 2 if location[0] in _KEY_BY_KEY else 1]))


def _value(document: Mapping[str, Any], steps: Sequence[str]) -> object:
    first, *rest = steps
    inner = document.get(first)
    return inner if not rest else _value(inner, rest) if isinstance(inner, Mapping) else None


def _without(document: Mapping[str, Any], steps: Sequence[str]) -> dict[str, Any]:
    first, *rest = steps
    left = {key: value for key, value in document.items() if key != first}
    inner = document.get(first)
    return {**left, first: _without(inner, rest)} if rest and isinstance(inner, Mapping) else left
