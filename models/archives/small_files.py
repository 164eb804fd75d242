"""Configuration files that strangers may have written: read only if they are as small as such files are."""

from pathlib import Path

from models.text_files import read_text

_LARGEST_BYTES = 1 << 20


def read_small_text(file: Path, source: str) -> str:
    """The text of a file of at most 1 MiB; otherwise as `models.text_files.read_text`."""
    return read_text(file, source, _LARGEST_BYTES)
