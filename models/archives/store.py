"""A TorchServe model store: which models its archives make, and the `Place` of each."""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from models.archives.folders import PrivateFolders
from models.archives.known_names import KnownNames, stem
from models.archives.limits import DEFAULT_LIMITS, ExtractionLimits
from models.archives.reading import Archive, is_packed, is_unpacked, specify, unpack
from models.archives.settings import place_of
from models.archives.store_config import (
    STORE_CONFIG,
    Loaded,
    StoreConfig,
    find_store_config,
    foreign_configs,
    read_store_config,
)
from models.config_lines import ConfigLines
from models.errors import ArchiveError, ModelsError, RepositoryError
from models.file_traces import FileTrace, traces, unfinished
from models.model_entry import ModelEntry
from models.model_names import printable
from models.places import Place
from models.problems import Problems
from models.spec import ModelSpec

_NO_CONFIG = StoreConfig(lines=ConfigLines(source=STORE_CONFIG))


def archive_places(
    root: Path, folders: PrivateFolders, names: KnownNames, limits: ExtractionLimits = DEFAULT_LIMITS
) -> Sequence[Place]:
    """The models of a store: archives and unpacked archives, those of one model name together. Blocks.

    A ``config.properties`` in the store, or beside it and naming it as its ``model_store``, is honoured.

    Args:
        root: The store's directory.
        folders: Where archives are unpacked.
        names: Of models, from earlier looks.
        limits: What archives may hold.

    Raises:
        RepositoryError: The store cannot be read.
    """
    try:
        paths = sorted(path for path in root.iterdir() if not path.name.startswith("."))
        found = [path for path in paths if is_packed(path) or is_unpacked(path)]
        config_file = find_store_config(root)
        config = read_store_config(config_file) if config_file else _NO_CONFIG
        known = names.look(root, found, limits)
        if not found and config.load is None:
            return ()
        by_name = _by_name(root, config, known)
    except OSError as error:
        what = error.strerror or type(error).__name__
        raise RepositoryError(f"model store {root.name}: found {what}, expected a directory of archives") from error
    skipped = tuple(printable(path.name) for path in paths if path.suffix == ".war")
    store = _Store(
        config_file=config_file,
        folders=folders,
        limits=limits,
        models=tuple(by_name),
        skipped=skipped,
        notes=() if config_file else tuple(foreign_configs(root)),
    )
    return [ArchivePlace(name, archives, store) for name, archives in by_name.items()]


def _by_name(root: Path, config: StoreConfig, names: Mapping[Path, str]) -> Mapping[str, Sequence[Path]]:
    """Archives by the name of their model, sorted; one that is named and not there as well.

    Args:
        root: The store's directory.
        config: Names archives, or none.
        names: Those of the archives that are there.
    """
    loaded = config.load if config.load is not None else [Loaded(path.name) for path in names]
    by_name: defaultdict[str, list[Path]] = defaultdict(list)
    for entry in loaded:
        path = root / entry.file
        by_name[entry.model or names.get(path) or stem(path)] += [path] if entry.file else []
    return {name: sorted(set(paths)) for name, paths in sorted(by_name.items())}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Store:
    """What all places of a store share."""

    config_file: Path | None
    folders: PrivateFolders
    limits: ExtractionLimits
    models: tuple[str, ...]
    skipped: tuple[str, ...]
    notes: tuple[str, ...]

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
                return printable(f"{archive.name}/{name}")
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
        self.notes += self._order_notes(specs)
        served = {spec.version for spec in specs}
        return ModelEntry(
            name=self.name,
            versions=tuple(specs),
            broken=tuple(sorted(self.broken - served)),
            problems=self.problems.found(),
            notes=tuple(dict.fromkeys(self.notes)),
            required=False if self._is_only_named(paths) else None,
            version_labels={
                spec.version_name: spec.version for spec in specs if spec.version_name != str(spec.version)
            },
        )

    def _is_only_named(self, paths: Sequence[Path]) -> bool:
        """Whether nothing but load_models knows of the model: TorchServe logs that, and starts."""
        return self.config.load is not None and not any(path.exists() for path in paths)

    def _unpack(self, path: Path) -> Archive | None:
        try:
            if not path.exists():
                found = f"found no {path.name} in the store, expected it there"
                if self.config.load is not None:
                    where = f"{place_of(self.config.lines, 'load_models')}: load_models"
                    found = f"{where}: {found} (the server is ready without it); put it there, or name it no more"
                raise ArchiveError(found)
            return unpack(path, self.store.folders, self.store.limits)
        except ModelsError as error:
            self.problems.add(error)
        except OSError as error:
            self.problems.add(_unreadable(printable(path.name), error))
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
        self.notes += self.store.notes
        for model in self.config.tables.by_model:
            if model not in self.store.models:
                path = f"models.{model}"
                self.notes.append(f"{place_of(self.config.lines, path)}: {path}: has no effect: no such model here")

    def _order_notes(self, specs: Sequence[ModelSpec]) -> Iterator[str]:
        """What requests without a version get, where that is not what the names of versions suggest."""
        default = self.config.tables.default_versions.get(self.name, "")
        names = [spec.version_name for spec in specs]
        if default and default not in names:
            path = f"models.{self.name}.{default}.defaultVersion"
            where = place_of(self.config.lines, path)
            yield f"{where}: {path}: has no effect: version {default} of {self.name} cannot be served, or is not there"
        if not specs:
            return
        highest = specs[-1]
        newest = max(names, key=lambda name: [int(step) for step in name.split(".")])
        expected = default if default in names else newest
        if expected != highest.version_name:
            yield (
                f"{self.name}: requests without a version get {highest.version_name} (number {highest.version}, the "
                f"highest), not {expected}; to get that, name it, or take the other archive out of the store"
            )

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


def _unreadable(where: str, error: OSError) -> RepositoryError:
    return RepositoryError(f"{where}: cannot be read: {error.strerror or type(error).__name__}")
