"""What a store says that it holds, checked before any of it touches the disk."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from models.errors import RepositoryError


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorLimits:
    """What is taken from a store.

    Attributes:
        max_objects: In a repository.
        max_object_bytes: Of one object.
        max_bytes: Of all together.
        max_name_bytes: Of an object's name below the repository, in UTF-8.
        max_levels: Parts of such a name.
    """

    max_objects: int = 100_000
    max_object_bytes: int = 64 << 30
    max_bytes: int = 1 << 40
    max_name_bytes: int = 1024
    max_levels: int = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteObject:
    """One object.

    Attributes:
        key: What the store calls it.
        name: Its path below the repository, with slashes; one that ends with a slash marks a directory.
        size_bytes: Of its content.
        tag: Changes whenever the content does: an entity tag, a generation or a time.
        md5: Hex digest of the content, if the store tells one.
    """

    key: str = field(repr=False)
    name: str
    size_bytes: int
    tag: str
    md5: str | None = None

    @property
    def is_directory(self) -> bool:
        """Whether it only marks a directory, as consoles of object stores do."""
        return self.name.endswith("/")


Models = Mapping[str, Sequence[RemoteObject]]
"""The objects of each entry of the repository's top level: of a model's directory, or the one of an archive."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of a repository.

    Attributes:
        models: What can be mirrored.
        problems: Why the others cannot, by entry; by the empty name for objects that belong to none.
    """

    models: Models
    problems: Mapping[str, RepositoryError]


def group(objects: Iterable[RemoteObject], limits: MirrorLimits) -> Listing:
    """The objects by entry. A bad name spoils its entry, not the others.

    Raises:
        RepositoryError: There are too many objects or bytes.
    """
    models: dict[str, list[RemoteObject]] = {}
    problems: dict[str, RepositoryError] = {}
    count = total_bytes = 0
    for found in objects:
        count += 1
        total_bytes += found.size_bytes
        _check_totals(count, total_bytes, limits)
        top = found.name.partition("/")[0]
        if top.startswith(".") and top not in {".", ".."}:
            continue  # hidden ones are no models
        problem = _problem(found, limits)
        if problem:
            owner = "" if top in {"", ".", ".."} else top
            problems.setdefault(owner, RepositoryError(f"object {found.name[:256]!r}: found {problem}"))
        else:
            models.setdefault(top, []).append(found)
    for name, members in models.items():
        clash = _clash(members)
        if clash:
            problems.setdefault(name, RepositoryError(f"object {clash!r}: found both an object and a directory"))
    return Listing({name: members for name, members in models.items() if name not in problems}, problems)


def _check_totals(count: int, total_bytes: int, limits: MirrorLimits) -> None:
    if count > limits.max_objects:
        raise RepositoryError(f"found more than {limits.max_objects} objects; give a longer prefix")
    if total_bytes > limits.max_bytes:
        raise RepositoryError(f"found more than {limits.max_bytes} bytes; give a longer prefix")


def _problem(found: RemoteObject, limits: MirrorLimits) -> str:
    """What is wrong with an object, or an empty text."""
    parts = found.name.removesuffix("/").split("/")
    if not {"", ".", ".."}.isdisjoint(parts):
        return "an absolute path, or a name with empty or dotted parts"
    if "\\" in found.name or any(ord(character) < 32 or 127 <= ord(character) < 160 for character in found.name):
        return "a backslash or a control character in its name"
    if len(parts) > limits.max_levels:
        return f"{len(parts)} levels, expected at most {limits.max_levels}"
    encoded = found.name.encode("utf-8", "surrogatepass")
    if len(encoded) > limits.max_name_bytes or any(len(part.encode("utf-8", "replace")) > 255 for part in parts):
        return f"a name of {len(encoded)} bytes, expected at most {limits.max_name_bytes}, and 255 between slashes"
    if found.size_bytes > limits.max_object_bytes:
        return f"{found.size_bytes} bytes, expected at most {limits.max_object_bytes}"
    return "content in a directory's mark" if found.is_directory and found.size_bytes else ""


def _clash(members: Sequence[RemoteObject]) -> str:
    """A name that is an object and a directory at the same time, or an empty text."""
    files = {member.name for member in members if not member.is_directory}
    for member in members:
        parts = member.name.removesuffix("/").split("/")
        above = len(parts) if not member.is_directory else len(parts) + 1
        for length in range(1, above):
            if "/".join(parts[:length]) in files:
                return "/".join(parts[:length])
    return ""
