"""Model repositories: which models there are, and where."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from models.config_code import Completer
from models.errors import RepositoryError
from models.model_directory import DirectoryPlace
from models.model_entry import ModelEntry
from models.places import Place

FindPlaces = Callable[[Path], Sequence[Place]]


class Clash:
    """A `Place` of a name that several repositories have; it cannot be read.

    Args:
        name: The name.
        places: Where it was found.
    """

    def __init__(self, name: str, places: Sequence[Place]) -> None:
        self.name = name
        self._places = places

    def fingerprint(self) -> Hashable:
        """See `Place`."""
        return tuple(place.fingerprint() for place in self._places)

    def unfinished(self) -> str:
        """See `Place`."""
        return ""

    def read(self, override: str | None = None) -> ModelEntry:  # noqa: ARG002 - whatever it says, the name stays
        """See `Place`."""
        problem = (
            f"{self.name}: found in {len(self._places)} repositories, expected in one; rename or remove all but one"
        )
        return ModelEntry(name=self.name, problems=(RepositoryError(problem),))


class Repository:
    """All models below some directories.

    Args:
        roots: Directories with one subdirectory a model.
        completer: For models whose code completes their configuration.
        find_more: Finds models in other forms than directories in Triton's layout, below a root.
    """

    def __init__(
        self, roots: Sequence[Path], *, completer: Completer | None = None, find_more: Sequence[FindPlaces] = ()
    ) -> None:
        self._roots = tuple({root.resolve(): root for root in roots}.values())  # a root given twice counts once
        self._completer = completer
        self._find_more = find_more

    def places(self) -> Mapping[str, Place]:
        """Every model that is there now, sorted by name. Blocks on reads of directories.

        Raises:
            RepositoryError: A root is no readable directory.
        """
        found: defaultdict[str, list[Place]] = defaultdict(list)
        for root in self._roots:
            for place in self._below(root):
                found[place.name].append(place)
        return {name: _only(name, places) for name, places in sorted(found.items())}

    def _below(self, root: Path) -> Sequence[Place]:
        own = [DirectoryPlace(path, self._completer) for path in _model_directories(root)]
        return [*own, *(place for find in self._find_more for place in find(root))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Everything found under some roots; the models are sorted by name."""

    models: tuple[ModelEntry, ...]


def scan(roots: Sequence[Path]) -> Scan:
    """Read all models under `roots`. Blocks on file reads. One broken model does not hide the others.

    Raises:
        RepositoryError: A root is no readable directory.
    """
    return Scan(models=tuple(place.read() for place in Repository(roots).places().values()))


def _only(name: str, places: Sequence[Place]) -> Place:
    return places[0] if len(places) == 1 else Clash(name, places)


def _model_directories(root: Path) -> list[Path]:
    try:
        # Hidden ones (.git, a Kubernetes volume's ..data) are not models; unpacked archives are no directories of ours.
        paths = [path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")]
        return [path for path in paths if not (path / "MAR-INF").is_dir()]
    except OSError as error:
        expected = "expected a directory with one subdirectory a model"
        raise RepositoryError(f"model repository {root}: found {error.strerror or error}, {expected}") from error
