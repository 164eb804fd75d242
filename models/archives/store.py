"""A TorchServe model store: which models its archives make, and the `Place` of each."""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from models.archives.limits import ExtractionLimits
from models.archives.reading import Archive, is_packed, is_unpacked, model_name, specify, stem, unpack
from models.archives.settings import place_of
from models.archives.store_config import Loaded, StoreConfig, read_store_config
from models.config_lines import ConfigLines
from models.errors import ArchiveError, ModelsError, RepositoryError
from models.file_traces import FileTrace, traces, unfinished
from models.model_entry import ModelEntry
from models.places import Place
from models.problems import Problems
from models.spec import ModelSpec

_CONFIG = "config.properties"
_NO_CONFIG = StoreConfig(lines=ConfigLines(source=_CONFIG))
_DEFAULT_LIMITS = ExtractionLimits()


def archive_places(root: Path, work: Path, limits: ExtractionLimits = _DEFAULT_LIMITS) -> Sequence[Place]:
    """The models of a store: archives and unpacked archives, those of one model name together. Blocks.

    A ``config.properties`` in the store, or beside it and naming it as its ``model_store``, is honoured.

    Args:
        root: The store's directory.
        work: Where archives are unpacked; private to this server, or shared by servers of one user.
        limits: What archives may hold.

    Raises:
        RepositoryError: The store cannot be read.
    """
    try:
        paths = sorted(path for path in root.iterdir() if not path.name.startswith("."))
        found = [path for path in paths if is_packed(path) or is_unpacked(path)]
        config_file = _find_config(root)
        config = read_store_config(config_file) if config_file else _NO_CONFIG
        if not found and config.load is None:
            return ()
        by_name = _by_name(root, found, config, limits)
    except OSError as error:
        what = error.strerror or type(error).__name__
        raise RepositoryError(f"model store {root.name}: found {what}, expected a directory of archives") from error
    skipped = tuple(path.name for path in paths if path.suffix == ".war")
    store = _Store(config_file=config_file, work=work.absolute(), limits=limits, models=tuple(by_name), skipped=skipped)
    return [ArchivePlace(name, archives, store) for name, archives in by_name.items()]


def _find_config(root: Path) -> Path | None:
    """In the store; else beside it, if it says that it belongs to this store and not to something else."""
    own = root / _CONFIG
    if own.is_file():
        return own
    for file in (root.parent / _CONFIG, root.parent / "config" / _CONFIG):
        if file.is_file() and read_store_config(file).store_name == root.name:
            return file
    return None


def _by_name(
    root: Path, found: Sequence[Path], config: StoreConfig, limits: ExtractionLimits
) -> Mapping[str, Sequence[Path]]:
    """Archives by the name of their model, sorted; one that is named and not there as well."""
    loaded = config.load if config.load is not None else [Loaded(path.name) for path in found]
    by_name: defaultdict[str, list[Path]] = defaultdict(list)
    for entry in loaded:
        path = root / entry.file
        is_there = path in found
        by_name[entry.model or (model_name(path, limits) if is_there else stem(path))].append(path)
    return {name: sorted(set(paths)) for name, paths in sorted(by_name.items())}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Store:
    """What all places of a store share."""

    config_file: Path | None
    work: Path
    limits: ExtractionLimits
    models: tuple[str, ...]
    skipped: tuple[str, ...]

    def config(self) -> StoreConfig:
        """Read anew, because places are read when their fingerprints have changed."""
        return read_store_config(self.config_file) if self.config_file else _NO_CONFIG


class ArchivePlace:
    """A `Place`: all archives of one model, each of which is a version.

    Args:
        name: The model's.
        archives: Files and directories.
        store: What they lie in.
    """

    def __init__(self, name: str, archives: Sequence[Path], store: _Store) -> None:
        self.name = name
        self._archives = tuple(archives)
        self._store = store

    def fingerprint(self) -> Hashable:
        """See `Place`."""
        config = (self._store.config_file,) if self._store.config_file else ()
        return tuple(_trace(path) for path in (*self._archives, *config))

    def unfinished(self) -> str:
        """See `Place`; a packed archive that is incomplete is found out when it is read."""
        for archive in self._archives:
            name = unfinished(traces(archive)) if archive.is_dir() else ""
            if name:
                return f"{archive.name}/{name}"
        return ""

    def read(self, override: str | None = None) -> ModelEntry:
        """See `Place`."""
        if override is not None:
            problem = f"{self.name}: found a configuration in the load request, expected none for an archive"
            return ModelEntry(name=self.name, problems=(RepositoryError(problem),))
        try:
            config = self._store.config()
            if config.problems:
                return ModelEntry(name=self.name, problems=config.problems)
            return _Reading(self.name, self._store, config).read(self._archives)
        except OSError as error:
            return ModelEntry(name=self.name, problems=(_unreadable(self.name, error),))


def _trace(path: Path) -> Hashable:
    if path.is_dir():
        return traces(path)
    try:
        status = path.stat()
    except FileNotFoundError:
        return FileTrace(path.name, 0, 0)
    return FileTrace(path.name, status.st_size, status.st_mtime_ns)


@dataclass(slots=True)
class _Reading:
    """One reading of a place."""

    name: str
    store: _Store
    config: StoreConfig
    problems: Problems = field(default_factory=Problems)
    notes: list[str] = field(default_factory=list)
    broken: set[int] = field(default_factory=set)

    def read(self, paths: Sequence[Path]) -> ModelEntry:
        archives = [archive for path in paths if (archive := self._unpack(path))]
        self._take_store_notes()
        self._check_tables(archives)
        specs = sorted(self._specify(self._each_once(archives)), key=lambda spec: spec.version)
        self.notes += _order_notes(specs, self.config.tables.default_versions.get(self.name, ""))
        served = {spec.version for spec in specs}
        return ModelEntry(
            name=self.name,
            versions=tuple(specs),
            broken=tuple(sorted(self.broken - served)),
            problems=self.problems.found(),
            notes=tuple(dict.fromkeys(self.notes)),
            version_labels={
                spec.version_name: spec.version for spec in specs if spec.version_name != str(spec.version)
            },
        )

    def _unpack(self, path: Path) -> Archive | None:
        try:
            if not path.exists():
                where = (
                    "" if self.config.load is None else f"{place_of(self.config.lines, 'load_models')}: load_models: "
                )
                raise ArchiveError(f"{where}found no {path.name} in the store, expected it there")
            return unpack(path, self.store.work, self.store.limits)
        except ModelsError as error:
            self.problems.add(error)
        except OSError as error:
            self.problems.add(_unreadable(path.name, error))
        return None

    def _each_once(self, archives: Sequence[Archive]) -> Iterator[Archive]:
        """Archives whose version no other one has."""
        by_version: defaultdict[int, list[Archive]] = defaultdict(list)
        for archive in archives:
            by_version[archive.manifest.version].append(archive)
        for version, same in by_version.items():
            if len(same) == 1:
                yield same[0]
                continue
            self.broken.add(version)
            names = ", ".join(f"{archive.file_name} ({archive.manifest.version_name})" for archive in same)
            self.problems.add(
                RepositoryError(
                    f"{self.name}: found version {version} in {names}, expected it in one; remove the others"
                )
            )

    def _specify(self, archives: Iterator[Archive]) -> Iterator[ModelSpec]:
        for archive in archives:
            table = self.config.tables.by_model.get(self.name, {}).get(archive.manifest.version_name)
            given = table.settings.over(self.config.defaults) if table else self.config.defaults
            if table:
                self.notes += table.notes
                if table.problems:
                    self.broken.add(archive.manifest.version)
                    continue
            try:
                spec, notes = specify(archive, self.name, given, self.config.flags)
            except (ModelsError, OSError) as error:
                self.broken.add(archive.manifest.version)
                self.problems.add(_unreadable(archive.file_name, error) if isinstance(error, OSError) else error)
            else:
                self.notes += notes
                yield spec

    def _take_store_notes(self) -> None:
        """What concerns no single model is told once, with the first one."""
        if self.name != self.store.models[0]:
            return
        self.notes += [f"{name}: skipped, workflow archives are not served" for name in self.store.skipped]
        self.notes += self.config.notes
        for model in self.config.tables.by_model:
            if model not in self.store.models:
                path = f"models.{model}"
                self.notes.append(f"{place_of(self.config.lines, path)}: {path}: has no effect: no such model here")

    def _check_tables(self, archives: Sequence[Archive]) -> None:
        """Tables of versions that are not there are mistakes if they leave a version that is there without one."""
        tables = self.config.tables.by_model.get(self.name, {})
        present = {archive.manifest.version_name for archive in archives}
        lacking = sorted(present - tables.keys())
        for version, table in tables.items():
            self.problems.add(*table.problems)
            path = f"models.{self.name}.{version}"
            if version in present:
                continue
            if lacking:
                found, expected = f'version "{version}"', f'the version of an archive, "{lacking[0]}"'
                self.problems.add(self.config.lines.error(path, found=found, expected=expected))
            else:
                where = place_of(self.config.lines, path)
                self.notes.append(f"{where}: {path}: has no effect: there is no such version here")


def _order_notes(specs: Sequence[ModelSpec], default_version: str) -> Iterator[str]:
    """What requests without a version get, where that is not what the names of versions suggest."""
    if not specs:
        return
    highest = specs[-1]
    newest = max(specs, key=lambda spec: [int(step) for step in spec.version_name.split(".")])
    expected = default_version or newest.version_name
    if expected != highest.version_name:
        yield (
            f"requests without a version get {highest.version_name} (number {highest.version}, the highest), not "
            f"{expected}; to get that, name it, or take the other archive out of the store"
        )


def _unreadable(where: str, error: OSError) -> RepositoryError:
    return RepositoryError(f"{where}: cannot be read: {error.strerror or type(error).__name__}")
