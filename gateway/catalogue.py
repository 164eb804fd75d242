"""Every known model with its versions: what can be asked, what is loaded, what failed and why."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from backends.errors import NoInstanceError
from gateway.control import IndexEntry, VersionState
from gateway.hosted import Hosted
from gateway.lifecycle import Move, next_state
from models.errors import ModelNotFoundError, NoVersionError, VersionNotFoundError, VersionNotReadyError
from models.spec import ModelSpec

IDLE = "scaled to 0 instances"
"""The reason of a version without instances."""


@dataclass(slots=True)
class VersionRecord:
    """One version.

    Attributes:
        number: Of the version.
        state: What it is doing.
        reason: Why it is not ready, or why it could not be reloaded.
        hosted: What answers, while the state is READY.
        spec: What the repository said when it was loaded last.
        loading: What is being loaded.
        files: What it was loaded from.
        is_wanted: It should be served.
        is_idle: It was scaled to no instances.
    """

    number: int
    state: VersionState = VersionState.UNAVAILABLE
    reason: str = ""
    hosted: Hosted | None = None
    spec: ModelSpec | None = None
    loading: ModelSpec | None = None
    files: Hashable = None
    is_wanted: bool = False
    is_idle: bool = False

    @property
    def serving(self) -> ModelSpec | None:
        """What answers."""
        return self.hosted.spec if self.hosted is not None else None

    def move(self, move: Move, reason: str = "") -> None:
        """Something happens to it. Raises IllegalMoveError."""
        self.state = next_state(self.state, move)
        self.reason = reason

    def put_in(self, hosted: Hosted, spec: ModelSpec, files: Hashable = None) -> Hosted | None:
        """A loaded version takes over; gives what answered until now."""
        self.move(Move.LOADED)
        old, self.hosted = self.hosted, hosted
        self.spec, self.files, self.is_wanted, self.is_idle = spec, files, True, False
        return old

    def forget(self) -> None:
        """It is gone: a repository may have had hundreds of versions, each with thousands of labels."""
        if not self.is_idle:
            self.spec, self.files = None, None

    def take_out(self, move: Move, reason: str = "") -> Hosted | None:
        """A move out of service; gives what answered until now."""
        hosted, self.hosted = self.hosted, None
        self.move(move, reason)
        return hosted


@dataclass(slots=True)
class ModelRecord:
    """One model.

    Attributes:
        name: Its name.
        versions: By number.
        required: As shoal.toml says; None: while it is wanted.
        labels: Version numbers by label.
        is_wanted: It should be loaded: from the start, or because it was loaded on demand and not unloaded.
        is_asked: Somebody asked for it, not only for an ensemble that needs it.
        is_read: What its repository says is known.
        problems: What is wrong with it as a whole, in sentences.
        tried: Fingerprint of the files that the last try to load it found.
        needs: The models that it is made of, if it is an ensemble.
        parts: What these were when it was connected to them.
    """

    name: str
    versions: dict[int, VersionRecord] = field(default_factory=dict)
    required: bool | None = None
    labels: Mapping[str, int] = field(default_factory=dict)
    is_wanted: bool = False
    is_asked: bool = False
    is_read: bool = False
    problems: tuple[str, ...] = ()
    tried: Hashable = None
    needs: Sequence[str] = ()
    parts: Sequence[ModelSpec | None] = ()

    def version(self, number: int) -> VersionRecord:
        """The record of a version, made if there is none."""
        return self.versions.setdefault(number, VersionRecord(number))

    def newest(self) -> Hosted | None:
        """What answers requests without a version: the highest one that is ready."""
        best: VersionRecord | None = None
        for version in self.versions.values():
            if version.hosted is not None and (best is None or version.number > best.number):
                best = version
        return best.hosted if best is not None else None

    def serving(self) -> Mapping[int, Hosted]:
        """What answers, by version."""
        return {number: version.hosted for number, version in self.versions.items() if version.hosted is not None}

    @property
    def specs(self) -> Sequence[ModelSpec]:
        """What is loaded or being loaded of it, but for what goes when its successor is ready."""
        found = (version.loading or (version.is_wanted and version.serving) for version in self.versions.values())
        return [spec for spec in found if spec]

    @property
    def counts(self) -> bool:
        """Whether the server's readiness depends on it."""
        if self.required is not None:
            return self.required
        return self.is_wanted and not any(version.is_idle for version in self.versions.values())

    @property
    def is_well(self) -> bool:
        """Whether what answers requests without a version works: a newer version that failed leaves it as it is."""
        newest = self.newest()
        return newest is not None and newest.served.is_available


class Catalogue:
    """Finds what answers. Changed by the `ModelManager` alone, between two turns of the event loop."""

    def __init__(self) -> None:
        self._records: dict[str, ModelRecord] = {}

    def find(self, model: str, version: int | None) -> Hosted:
        """What answers for a version, or for the newest one that is ready.

        Raises:
            ModelUnavailableError: No such model or version, or not ready.
            NoInstanceError: It was scaled to no instances.
        """
        record = self._known(model)
        if version is None:
            hosted = record.newest()
            if hosted is not None:
                return hosted
            _refuse_idle(model, record.versions.values())
            raise NoVersionError(model)
        found = record.versions.get(version)
        if found is None:
            raise VersionNotFoundError(model, version)
        if found.hosted is None:
            _refuse_idle(model, (found,))
            raise VersionNotReadyError(model, version)
        return found.hosted

    def find_spec(self, model: str, version: int | None) -> ModelSpec | None:
        """What answers, as far as it is loaded."""
        record = self._records.get(model)
        if record is None:
            return None
        if version is None:
            hosted = record.newest()
        else:
            found = record.versions.get(version)
            hosted = found.hosted if found is not None else None
        return hosted.spec if hosted is not None else None

    def scalable(self, model: str, version: int | None) -> VersionRecord:
        """A version that is served, or was scaled to no instances; without a number the newest.

        Raises:
            ModelUnavailableError: There is none.
        """
        versions = self._known(model).versions
        if version is not None and version not in versions:
            raise VersionNotFoundError(model, version)
        here = [number for number, record in versions.items() if record.hosted is not None or record.is_idle]
        if version is not None and version not in here:
            raise VersionNotReadyError(model, version)
        if not here:
            raise NoVersionError(model)
        return versions[max(here) if version is None else version]

    def number_of(self, model: str, text: str) -> int:
        """The version that a number or a label means. Raises ModelNotFoundError and VersionNotFoundError."""
        record = self._known(model)
        if text.isascii() and text.isdigit():
            return int(text)
        try:
            return record.labels[text]
        except KeyError:
            raise VersionNotFoundError(model, text) from None

    def is_ready(self, model: str, version: int | None) -> bool:
        """Whether a request would be taken. Raises ModelNotFoundError and VersionNotFoundError."""
        record = self._known(model)
        if version is not None and version not in record.versions:
            raise VersionNotFoundError(model, version)
        hosted = record.newest() if version is None else record.versions[version].hosted
        return hosted is not None and hosted.served.is_available

    def problem(self, model: str) -> str:
        """What is wrong with it. Raises ModelNotFoundError."""
        record = self._known(model)
        failed = [version.reason for version in record.versions.values() if version.is_wanted and version.reason]
        return "; ".join(dict.fromkeys([*record.problems, *failed]))

    def ready_versions(self, model: str) -> Sequence[int]:
        """Versions that answer, ascending. Raises ModelNotFoundError."""
        return sorted(version.number for version in self._known(model).versions.values() if version.hosted)

    def names(self) -> Sequence[str]:
        """Models that are, were or should be loaded, sorted."""
        return sorted(record.name for record in self._records.values() if record.is_wanted or record.versions)

    def hosted(self) -> Iterator[Hosted]:
        """Everything that answers, by model and version."""
        for name in sorted(self._records):
            for _, version in sorted(self._records[name].versions.items()):
                if version.hosted is not None:
                    yield version.hosted

    def index(self) -> Iterator[IndexEntry]:
        """Every model and version, sorted."""
        for name in sorted(self._records):
            record = self._records[name]
            if not record.versions:
                yield IndexEntry(name, reason="; ".join(record.problems))
            for number, version in sorted(record.versions.items()):
                # What answers has no reason, though its next version may have failed: `problem` tells that.
                why = "" if version.state is VersionState.READY else version.reason or "; ".join(record.problems)
                yield IndexEntry(name, number, version.state, why)

    def all_needed_work(self) -> bool:
        """Whether every model that the server's readiness depends on answers."""
        return all(record.is_well for record in self._records.values() if record.counts)

    def pending(self, model: str | None = None) -> str:
        """A sentence on what would classify images and does not answer just now; empty if there is nothing.

        Args:
            model: Only this one.
        """
        for record in self._records.values():
            if not record.is_wanted or (model is not None and record.name != model) or record.newest() is not None:
                continue
            if not record.is_read:
                return f"model '{record.name}' is loading"
            for version in record.versions.values():
                spec = version.loading or version.spec
                if spec is not None and spec.preprocessing is not None:
                    what = "is loading" if version.loading else version.reason
                    return f"model '{record.name}' version {version.number}: {what}"
        return ""

    def is_unread(self, name: str) -> bool:
        """Whether it is wanted, and what its repository says of it is not known yet."""
        record = self._records.get(name)
        return record is not None and record.is_wanted and not record.is_read

    # For the manager

    def record(self, name: str) -> ModelRecord:
        """The record of a model, made if there is none."""
        return self._records.setdefault(name, ModelRecord(name))

    def records(self) -> Sequence[ModelRecord]:
        """All of them."""
        return list(self._records.values())

    def forget(self, name: str) -> None:
        """It is in no repository any more, and nothing of it is loaded."""
        del self._records[name]

    def know(self, names: Iterable[str]) -> None:
        """These are in the repositories; others of which nothing was ever loaded are forgotten."""
        here = dict.fromkeys(names)
        for record in self.records():
            if record.name not in here and not record.versions and not record.is_wanted:
                del self._records[record.name]
        for name in here:
            self.record(name)

    def _known(self, model: str) -> ModelRecord:
        record = self._records.get(model)
        if record is None or not (record.is_wanted or record.versions):
            raise ModelNotFoundError(model)
        return record


def _refuse_idle(model: str, versions: Iterable[VersionRecord]) -> None:
    for version in versions:
        if version.is_idle:
            why = "" if version.reason in {"", IDLE} else f": {version.reason}"
            raise NoInstanceError(
                f"model '{model}' version {version.number} has no instances: it was scaled to 0; scale it up again{why}"
            )
