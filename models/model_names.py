"""What a model may be called: in a repository, in an archive's manifest, in a request's path."""

import re

NAME_RULE = "up to 255 letters, digits, '.', '_' and '-', no leading '.'"
"""For messages that say what was expected."""

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,254}")
_FOREIGN = re.compile(r"[^A-Za-z0-9._-]+")


def is_model_name(text: str) -> bool:
    """Whether this can be a model's name."""
    return _NAME.fullmatch(text) is not None


def printable(text: str) -> str:
    """A name or key for a message: what is not printable ASCII is escaped."""
    return text if text.isascii() and text.isprintable() else ascii(text)[1:-1]


def nearest_name(text: str) -> str:
    """A name that resembles `text`, under which can be told what is wrong with it; `text` itself if it is one."""
    return _FOREIGN.sub("_", text).lstrip(".")[:255] or "_"
