"""The virtual-time driver: a heap of future events and the same `Scheduler` as the live server.

The kernel is that of SimPy reduced to what is needed here: take the earliest instant, hand all of its events to the
scheduler at once, put the consequences of its commands on the heap.
"""

import heapq
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from batching.core.commands import Command, Expire, Refuse, Start
from batching.core.errors import BatchingError
from batching.core.events import Arrived, BatchDone, Event, InstanceFree, InstanceJoined, Timer, Withdrawn
from batching.core.scheduler import Scheduler
from batching.core.tickets import Sequence as TicketSequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request of the simulated load.

    Attributes:
        name: The caller's word for it, unique.
        at_ns: When it arrives.
        rows: Its rows.
        patience_ns: How long the caller waits before its deadline, or None.
        leaves_ns: How long after its arrival the caller gives up, or None.
        priority: Level, lower is served first.
        shape_key: Requests share a batch only if their keys are equal.
        timeout_ns: The request's own queue timeout, for policies that know one, or None.
        sequence: Its sequence, for stateful models.
    """

    name: str
    at_ns: int
    rows: int = 1
    patience_ns: int | None = None
    leaves_ns: int | None = None
    priority: int = 0
    shape_key: Hashable = None
    timeout_ns: int | None = None
    sequence: TicketSequence | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """A batch that ran: when it started, where, with whom, and why it had that size."""

    start_ns: int
    end_ns: int
    instance: str
    members: tuple[str, ...]
    rows: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a simulation gave.

    Attributes:
        executions: In order of their start.
        refused: Requests without admission, with their errors.
        dropped: Requests that the policy dropped, with the moment and the reason.
        expired: Requests whose deadline passed, with the moment.
        commands: Everything that the scheduler commanded, with the moment: the trace.
    """

    executions: Sequence[Execution]
    refused: Sequence[tuple[str, BatchingError]]
    dropped: Sequence[tuple[str, int, str]]
    expired: Sequence[tuple[str, int]]
    commands: Sequence[tuple[int, Command]]


@dataclass(slots=True)
class _Heap:
    """Future events; `serial` keeps those of one instant in the order in which they were planned."""

    entries: list[tuple[int, int, Event | Arrival]] = field(default_factory=list)
    serial: int = 0

    def push(self, at_ns: int, event: Event | Arrival) -> None:
        self.serial += 1
        heapq.heappush(self.entries, (at_ns, self.serial, event))

    def pop_instant(self) -> tuple[int, list[Event | Arrival]]:
        at_ns = self.entries[0][0]
        events = []
        while self.entries and self.entries[0][0] == at_ns:
            events.append(heapq.heappop(self.entries)[2])
        return at_ns, events


class Simulation:
    """Runs one scheduler against a load of arrivals.

    Args:
        scheduler: Fresh; the simulation drives it from time 0.
        service_ns: Time that a batch of so many rows occupies an instance.
        instances: Names of the instances, which join at time 0.
    """

    def __init__(
        self, scheduler: Scheduler, service_ns: Callable[[int], int], instances: Sequence[str] = ("instance_0",)
    ) -> None:
        self._scheduler = scheduler
        self._service_ns = service_ns
        self._heap = _Heap()
        self._names: dict[int, str] = {}
        self._executions: list[Execution] = []
        self._refused: list[tuple[str, BatchingError]] = []
        self._dropped: list[tuple[str, int, str]] = []
        self._expired: list[tuple[str, int]] = []
        self._commands: list[tuple[int, Command]] = []
        for instance in instances:
            self._heap.push(0, InstanceJoined(instance))

    def run(self, arrivals: Iterable[Arrival]) -> Outcome:
        """Play all arrivals to the end: until nothing is waiting, running or planned."""
        for arrival in arrivals:
            self._heap.push(arrival.at_ns, arrival)
        while self._heap.entries or self._scheduler.wake_at_ns is not None:
            self._step()
        return Outcome(
            executions=self._executions,
            refused=self._refused,
            dropped=self._dropped,
            expired=self._expired,
            commands=self._commands,
        )

    def _step(self) -> None:
        wake_ns = self._scheduler.wake_at_ns
        if wake_ns is not None and (not self._heap.entries or wake_ns <= self._heap.entries[0][0]):
            self._heap.push(wake_ns, Timer())
        now_ns, planned = self._heap.pop_instant()
        events: list[Event] = []
        for entry in planned:
            events += self._admit(entry, now_ns) if isinstance(entry, Arrival) else (entry,)
        for command in self._scheduler.handle(events, now_ns):
            self._commands.append((now_ns, command))
            self._execute(command, now_ns)

    def _admit(self, arrival: Arrival, now_ns: int) -> Sequence[Event]:
        deadline_ns = None if arrival.patience_ns is None else now_ns + arrival.patience_ns
        try:
            ticket = self._scheduler.reserve(
                arrival.rows,
                now_ns,
                deadline_ns=deadline_ns,
                priority=arrival.priority,
                shape_key=arrival.shape_key,
                timeout_ns=arrival.timeout_ns,
                sequence=arrival.sequence,
            )
        except BatchingError as error:
            self._refused.append((arrival.name, error))
            return ()
        self._names[ticket] = arrival.name
        if arrival.leaves_ns is not None:
            self._heap.push(now_ns + arrival.leaves_ns, Withdrawn(ticket))
        return (Arrived(ticket),)

    def _execute(self, command: Command, now_ns: int) -> None:
        match command:
            case Start():
                end_ns = now_ns + self._service_ns(command.rows)
                self._heap.push(end_ns, BatchDone(command.batch))
                self._heap.push(end_ns, InstanceFree(command.batch))
                members = tuple(self._names[ticket] for ticket in command.tickets)
                self._executions.append(
                    Execution(
                        start_ns=now_ns,
                        end_ns=end_ns,
                        instance=command.instance,
                        members=members,
                        rows=command.rows,
                        reason=command.reason.value,
                    )
                )
            case Expire(ticket):
                self._expired.append((self._names[ticket], now_ns))
            case Refuse(ticket, reason):
                self._dropped.append((self._names[ticket], now_ns, reason.value))
            case _:
                raise AssertionError(command)
