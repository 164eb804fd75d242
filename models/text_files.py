"""Small text files of a model directory, read with errors that name the place."""

import os
import stat
from pathlib import Path

from models.errors import ConfigError

_LARGEST_BYTES = 64 << 20  # of golden photographs' rows and of labels; whatever is larger is something else
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a directory",
}


def read_text(file: Path, source: str, limit_bytes: int = _LARGEST_BYTES) -> str:
    """The text of a UTF-8 file, with or without byte order mark.

    Args:
        file: The file.
        source: Its name for messages.
        limit_bytes: So large it may be.

    Raises:
        ConfigError: The file is not UTF-8, too large, or no plain file.
        OSError: The file cannot be read.
    """
    content = read_plain(file, source, limit_bytes)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            source=source,
            line=content.count(b"\n", 0, error.start) + 1,
            field="encoding",
            found=f"the byte 0x{content[error.start]:02x}",
            expected="UTF-8 text",
        ) from error


def read_plain(file: Path, source: str, limit_bytes: int) -> bytes:
    """The content of a plain file or of a link to one. Never waits for a writer, and never reads without end.

    Args:
        file: The file.
        source: Its name for messages.
        limit_bytes: So large it may be.

    Raises:
        ConfigError: It is too large, or a pipe, a device or the like.
        OSError: It cannot be read.
    """
    kind = stat.S_IFMT(file.stat().st_mode)
    if kind != stat.S_IFREG:
        found = _KINDS.get(kind, "something special")
        raise ConfigError(source=source, field="file", found=found, expected="a plain file")
    # Without waiting, because the file may have been replaced since.
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as opened:
        content = opened.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        found, expected = f"more than {limit_bytes} bytes", f"at most {limit_bytes}"
        raise ConfigError(source=source, field="size", found=found, expected=expected)
    return content


def file_inside(directory: Path, name: str) -> Path | None:
    """The existing file `name` in or below `directory`; None if there is none or it (links followed) leaves it."""
    if "\0" in name or Path(name).is_absolute():
        return None
    file = directory / name
    return file if file.is_file() and file.resolve().is_relative_to(directory.resolve()) else None


def read_labels(file: Path, source: str) -> tuple[str, ...]:
    """The labels of a file with one label a line; a final line break ends the last label.

    Raises:
        ConfigError: The file is not UTF-8 or has no labels.
    """
    text = read_text(file, source).replace("\r\n", "\n").removesuffix("\n")
    if not text:
        raise ConfigError(source=source, field="labels", found="an empty file", expected="one label a line")
    return tuple(text.split("\n"))
