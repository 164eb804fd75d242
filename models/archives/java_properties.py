"""The format of java.util.Properties, with the line of everything.

Comments begin with ``#`` or ``!``; ``=``, ``:`` or blanks end a key; a line that ends with a backslash goes on.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

_KEY = re.compile(r"((?:\\.|[^\\ \t\f=:])*)[ \t\f]*[=:]?[ \t\f]*")
_LINE_END = re.compile(r"\r\n|\r|\n")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """One key with its value.

    Attributes:
        key: Without escapes.
        value: Without escapes.
        line: Of the key, from 1.
        breaks: Positions in `value` at which a further line of the file begins.
    """

    key: str
    value: str
    line: int
    breaks: tuple[int, ...] = ()

    def line_at(self, position: int) -> int:
        """The line of the file in which this character of the value stands."""
        return self.line + bisect_right(self.breaks, position)


def parse_properties(text: str) -> Iterator[Property]:
    """All properties in the file's order; there is no such thing as a mistake in the format."""
    pieces: list[str] = []
    first_line = 1
    for number, raw in enumerate(_LINE_END.split(text), start=1):
        line = raw.lstrip(" \t\f")
        if not pieces:
            first_line = number
            if not line or line[0] in "#!":
                continue
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        pieces.append(line[:-1] if goes_on else line)
        if not goes_on:
            yield _property(pieces, first_line)
            pieces = []
    if pieces:
        yield _property(pieces, first_line)


def _property(pieces: list[str], line: int) -> Property:
    found = _KEY.match(pieces[0])
    if found is None:  # cannot be: the pattern matches the empty text
        raise AssertionError(pieces[0])
    parts = [_plain(pieces[0][found.end() :]), *map(_plain, pieces[1:])]
    ends = accumulate(map(len, parts[:-1]))
    return Property(_plain(found[1]), "".join(parts), line, tuple(ends))


def _plain(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)

    return _ESCAPE.sub(character, text)
