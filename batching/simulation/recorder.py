"""Everything that happened in a simulation, for tests and traces; its memory grows with the load."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from typing_extensions import override

from batching.core.actions import RefusalReason
from batching.core.commands import Command
from batching.core.errors import BatchingError
from batching.core.events import Event, InstanceJoined
from batching.core.scheduler import Scheduler
from batching.simulation.arrivals import Arrival
from batching.simulation.kernel import Kernel
from batching.simulation.observers import Entry, Observer, Run
from batching.simulation.replica import Replica
from batching.simulation.service import Occupancy


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """A batch that ran: when, where, with whom, and why it had that size.

    Attributes:
        start_ns: The instance took it.
        end_ns: The model ended; for a preempted batch, when that happened.
        instance: Where.
        members: Names of its requests.
        rows: Its rows.
        reason: Why it was closed.
        begins_ns: The model began.
        free_ns: The instance was free again.
        replica: Number of the replica.
        is_aborted: It was preempted.
    """

    start_ns: int
    end_ns: int
    instance: str
    members: tuple[str, ...]
    rows: int
    reason: str
    begins_ns: int
    free_ns: int
    replica: int = 0
    is_aborted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a simulation gave.

    Attributes:
        executions: In order of their start.
        answered: Requests that were answered, with the moment at which the caller has its answer.
        refused: Requests without admission, with their errors.
        expired: Requests whose deadline passed, with the moment.
        dropped: Requests that the policy ended without an answer, with the moment and the reason.
        withdrawn: Requests whose caller gave up, with the moment.
        commands: Everything that the schedulers commanded, with the moment: the trace.
    """

    executions: Sequence[Execution]
    answered: Sequence[tuple[str, int]]
    refused: Sequence[tuple[str, BatchingError]]
    expired: Sequence[tuple[str, int]]
    dropped: Sequence[tuple[str, int, str]]
    withdrawn: Sequence[tuple[str, int]]
    commands: Sequence[tuple[int, Command]]


class Recorder(Observer):
    """Writes down everything; `outcome` at the end."""

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._aborted_ns: dict[Run, int] = {}
        self._answered: list[tuple[str, int]] = []
        self._refused: list[tuple[str, BatchingError]] = []
        self._expired: list[tuple[str, int]] = []
        self._dropped: list[tuple[str, int, str]] = []
        self._withdrawn: list[tuple[str, int]] = []
        self._commands: list[tuple[int, Command]] = []

    def outcome(self) -> Outcome:
        """What has happened so far."""
        return Outcome(
            executions=[self._execution(run) for run in self._runs],
            answered=self._answered,
            refused=self._refused,
            expired=self._expired,
            dropped=self._dropped,
            withdrawn=self._withdrawn,
            commands=self._commands,
        )

    def _execution(self, run: Run) -> Execution:
        aborted_ns = self._aborted_ns.get(run)
        return Execution(
            start_ns=run.taken_ns,
            end_ns=run.ends_ns if aborted_ns is None else aborted_ns,
            instance=run.command.instance,
            members=tuple(arrival.name for _, arrival in run.entries),
            rows=run.command.rows,
            reason=run.command.reason.value,
            begins_ns=run.begins_ns,
            free_ns=run.free_ns if aborted_ns is None else aborted_ns,
            replica=run.replica,
            is_aborted=run.is_aborted,
        )

    @override
    def started(self, run: Run) -> None:
        self._runs.append(run)

    @override
    def aborted(self, now_ns: int, run: Run) -> None:
        self._aborted_ns[run] = now_ns

    @override
    def answered(self, now_ns: int, run: Run, entries: Sequence[Entry], answers_ns: Sequence[int]) -> None:
        self._answered += [(arrival.name, at_ns) for (_, arrival), at_ns in zip(entries, answers_ns, strict=True)]

    @override
    def refused(self, now_ns: int, arrival: Arrival, error: BatchingError) -> None:
        self._refused.append((arrival.name, error))

    @override
    def expired(self, now_ns: int, entry: Entry) -> None:
        self._expired.append((entry[1].name, now_ns))

    @override
    def dropped(self, now_ns: int, entry: Entry, reason: RefusalReason) -> None:
        self._dropped.append((entry[1].name, now_ns, reason.value))

    @override
    def withdrawn(self, now_ns: int, entry: Entry) -> None:
        self._withdrawn.append((entry[1].name, now_ns))

    @override
    def commanded(self, now_ns: int, replica: int, command: Command) -> None:
        self._commands.append((now_ns, command))


class Simulation:
    """Runs one scheduler against a list of arrivals and records everything: the short way for tests.

    Args:
        scheduler: Fresh; the simulation drives it from time 0.
        service_ns: Time that a batch of so many rows occupies an instance.
        instances: Names of the instances, which join at time 0.
    """

    def __init__(
        self, scheduler: Scheduler, service_ns: Callable[[int], int], instances: Sequence[str] = ("instance_0",)
    ) -> None:
        def occupy(rows: int, now_ns: int, _instance: str) -> Occupancy:
            end_ns = now_ns + service_ns(rows)
            return Occupancy(now_ns, end_ns, end_ns)

        self._recorder = Recorder()
        self._kernel = Kernel([Replica(scheduler, occupy)], [self._recorder])
        for instance in instances:
            self._kernel.plan(0, InstanceJoined(instance))

    def plan(self, at_ns: int, event: Event) -> None:
        """Let something happen from outside: instances join, leave or change their cap."""
        self._kernel.plan(at_ns, event)

    def run(self, arrivals: Iterable[Arrival]) -> Outcome:
        """Play all arrivals, in any order, to the end: until nothing is waiting, running or planned."""
        self._kernel.run(iter(sorted(arrivals, key=lambda arrival: arrival.at_ns)))
        return self._recorder.outcome()
