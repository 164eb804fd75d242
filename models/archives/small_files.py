"""Configuration files that strangers may have written: read only if they are as small as such files are."""

from pathlib import Path

from models.errors import ConfigError
from models.text_files import read_text

_LARGEST_BYTES = 1 << 20


def read_small_text(file: Path, source: str) -> str:
    """The text of a file of at most 1 MiB; otherwise as `models.text_files.read_text`."""
    size_bytes = file.stat().st_size
    if size_bytes > _LARGEST_BYTES:
        expected = f"at most {_LARGEST_BYTES}"
        raise ConfigError(source=source, field="size", found=f"{size_bytes} bytes", expected=expected)
    return read_text(file, source)
