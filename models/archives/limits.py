"""How much an archive may hold, and which names it may hold: checked for each member before it is written."""

import re
import unicodedata
from dataclasses import dataclass

from models.archives.shown import shown
from models.errors import ArchiveError

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_DRIVE = re.compile(r"[A-Za-z]:")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_LARGEST_STEP_BYTES = 255  # of the usual file systems


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionLimits:
    """What is refused before it fills the disk.

    Attributes:
        max_entries: Files and directories.
        max_bytes: Of all files together.
        max_ratio: Of all files together to the archive; what compresses better is a bomb.
        ratio_free_bytes: So much may be written whatever the ratio: small texts and zeros compress well.
        max_levels: Directories inside each other.
        max_name_bytes: Of a member's whole name.
    """

    max_entries: int = 10_000
    max_bytes: int = 16 << 30
    max_ratio: int = 200
    ratio_free_bytes: int = 256 << 20
    max_levels: int = 64
    max_name_bytes: int = 1024


DEFAULT_LIMITS = ExtractionLimits()


class Gate:
    """Admits the members of one archive one by one.

    Args:
        archive: Its file name, for messages.
        archive_bytes: Its size; 0 where nothing is compressed, so that no ratio is checked.
        limits: The limits.
    """

    def __init__(self, archive: str, archive_bytes: int, limits: ExtractionLimits) -> None:
        self._archive = archive
        self._archive_bytes = archive_bytes
        self._limits = limits
        self._members: dict[str, tuple[str, bool]] = {}  # folded name: as spelt first, whether it is a directory
        self._entries = 0
        self._declared_bytes = 0
        self._written_bytes = 0

    def fresh(self) -> "Gate":
        """Another one that has seen nothing yet."""
        return Gate(self._archive, self._archive_bytes, self._limits)

    def admit(self, name: str, *, is_directory: bool, declared_bytes: int) -> tuple[str, ...]:
        """The steps of a member's path below the private folder.

        Args:
            name: As the archive has it, with slashes; a directory's may end with one.
            is_directory: Whether it is one.
            declared_bytes: What the archive says of its size.

        Raises:
            ArchiveError: The name is not safe or there already, or there is too much.
        """
        self.count_entry()
        self._declared_bytes += declared_bytes
        self._check_bytes(self._declared_bytes)
        steps = self._steps(name.removesuffix("/") if is_directory else name)
        for level in range(1, len(steps)):
            self._occupy(steps[:level], name, is_directory=True)
        self._occupy(steps, name, is_directory=is_directory)
        return steps

    def count_entry(self) -> None:
        """Count a member, also one of which nothing becomes. Raises ArchiveError."""
        self._entries += 1
        self._check_entries(self._entries)

    def count(self, written_bytes: int) -> None:
        """Count bytes before they are written, whatever the archive has declared. Raises ArchiveError."""
        self._written_bytes += written_bytes
        self._check_bytes(self._written_bytes)

    def error(self, found: str, expected: str) -> ArchiveError:
        """What is wrong with this archive."""
        return ArchiveError(f"{self._archive}: found {found}, expected {expected}")

    def _check_bytes(self, size_bytes: int) -> None:
        limits = self._limits
        if size_bytes > limits.max_bytes:
            raise self.error("more content", f"at most {limits.max_bytes} bytes")
        largest = max(limits.ratio_free_bytes, self._archive_bytes * limits.max_ratio)
        if self._archive_bytes and size_bytes > largest:
            expected = f"at most {limits.max_ratio} times its size; pack it without compression if this is meant"
            raise self.error(f"content of {size_bytes} bytes or more in a file of {self._archive_bytes}", expected)

    def _steps(self, name: str) -> tuple[str, ...]:
        problem = problem_of_name(name, self._limits)
        if problem:
            raise self.error(f"the member {shown(name)} {problem}", "plain relative names; pack it again")
        return tuple(name.split("/"))

    def _occupy(self, steps: tuple[str, ...], name: str, *, is_directory: bool) -> None:
        spelt = "/".join(steps)
        # Some file systems do not tell apart what differs in case or in how accents are composed.
        folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", spelt).casefold())
        before = self._members.get(folded)
        if before is None:
            self._check_entries(len(self._members) + 1)  # directories that are only implied count as well
            self._members[folded] = (spelt, is_directory)
        elif not is_directory or before != (spelt, True):
            found = f"the members {shown(before[0])} and {shown(name)}, of which one would replace the other"
            raise self.error(found, "each name once, whatever its case")

    def _check_entries(self, entries: int) -> None:
        if entries > self._limits.max_entries:
            raise self.error("more members", f"at most {self._limits.max_entries}")


def problem_of_name(name: str, limits: ExtractionLimits = ExtractionLimits()) -> str:
    """Why a member, or a file that a manifest names, cannot have this name; empty if it can.

    Args:
        name: A relative path with slashes.
        limits: Of its length and depth.
    """
    if _SURROGATE.search(name):
        return "whose name is not UTF-8"
    if _CONTROL.search(name):
        return "with a control character in its name"
    if "\\" in name:
        return "with a backslash in its name"
    if name.startswith("/") or _DRIVE.match(name):
        return "with an absolute path"
    return _problem_of_steps(name, name.split("/"), limits)


def _problem_of_steps(name: str, steps: list[str], limits: ExtractionLimits) -> str:
    if ".." in steps:
        return "that leads out of the archive"
    if "" in steps or "." in steps:
        return "with an empty step in its path"
    if len(steps) > limits.max_levels:
        return f"below more than {limits.max_levels} directories"
    if len(name.encode()) > limits.max_name_bytes:
        return f"with a name of more than {limits.max_name_bytes} bytes"
    if max(len(step.encode()) for step in steps) > _LARGEST_STEP_BYTES:
        return f"with a step of more than {_LARGEST_STEP_BYTES} bytes in its path"
    return ""
