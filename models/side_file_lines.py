"""Where the tables and keys of a shoal.toml stand."""

import re
from collections.abc import Mapping

_TABLE = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]")
_KEY = re.compile(r"\s*([\w.\"' -]+?)\s*=")


def line_by_field(text: str) -> Mapping[str, int]:
    """Lines by field path. A simple scan: what it cannot see (inline tables) gets its parent's line."""
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.split("\n"), start=1):
        header, key = _TABLE.match(line), _KEY.match(line)
        if header:
            table = _plain(header[1])
            lines.setdefault(table, number)
        elif key:
            lines.setdefault(f"{table}.{_plain(key[1])}".lstrip("."), number)
    return lines


def _plain(key: str) -> str:
    return ".".join(step.strip().strip("\"'") for step in key.split("."))
