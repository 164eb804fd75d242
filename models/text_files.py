"""Small text files of a model directory, read with errors that name the place."""

from pathlib import Path

from models.errors import ConfigError


def read_text(file: Path, source: str) -> str:
    """The text of a UTF-8 file, with or without byte order mark.

    Args:
        file: The file.
        source: Its name for messages.

    Raises:
        ConfigError: The file is not UTF-8.
        OSError: The file cannot be read.
    """
    content = file.read_bytes()
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
