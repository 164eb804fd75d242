"""The virtual-time driver: a heap of future events and the same `Scheduler` as the live server.

The kernel is that of SimPy reduced to what is needed here: take the earliest instant, hand all of its events to the
scheduler at once, put the consequences of its commands on the heap. Requests of open loops are asked for one at a
time, so neither the heap nor anything else grows with the length of a simulation.

Everything on the request's path is written for speed: a simulated request must not cost more than the scheduler.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Any

from batching.core.commands import Abort, Command, Expire, Refuse, Release, Start
from batching.core.errors import BatchingError
from batching.core.events import Arrived, BatchDone, Event, InstanceFree, Timer, Withdrawn
from batching.simulation.arrivals import Arrival
from batching.simulation.network import Wire
from batching.simulation.observers import Entry, Observer, Run
from batching.simulation.replica import Replica
from batching.simulation.routers import Choose

_NEVER_NS = 1 << 62
_NO_MORE = Arrival("", _NEVER_NS)
_TIMER = Timer()
_new_tuple = tuple.__new__  # the NamedTuple's own constructor takes twice as long


class Kernel:
    """Drives the schedulers of all replicas against one load.

    Args:
        replicas: At least one, numbered from 0.
        observers: Who watches.
        wire: The network, or None: requests and answers arrive as they are sent.
        choose: The router; needed with more than one replica.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        observers: Sequence[Observer] = (),
        wire: Wire | None = None,
        choose: Choose | None = None,
    ) -> None:
        self._replicas = replicas
        self._outstanding = [replica.entries for replica in replicas]
        self._wire = wire
        self._choose = choose
        # What will happen: time, a serial number that keeps the order of planning, the handler and its argument.
        self._heap: list[tuple[int, int, Callable[[Any, int], None], Any]] = []
        self._serial = 0
        self._wakes_ns = [_NEVER_NS] * len(replicas)
        self._wake_ns = _NEVER_NS  # the earliest of them
        self._concerned: list[Replica] = []  # replicas with events at this instant
        self._prompt: list[Arrival] = []  # sent at this instant because of an answer at this instant
        self._performers: dict[type, Callable[[Replica, Any, int], None]] = {
            Start: self._start,
            Expire: self._expire,
            Refuse: self._drop,
            Release: self._release,
            Abort: self._abort,
        }
        self._tell = _Hooks(observers)
        self._watch_arrivals = self._tell.arrived
        self._plan(_NEVER_NS, self._nothing, None)  # so that the heap is never empty

    def plan(self, at_ns: int, event: Event, replica: int = 0) -> None:
        """Let something happen to a replica from outside: instances join, leave or change their cap."""
        self._plan(at_ns, self._happen, (self._replicas[replica], event))

    def run(self, arrivals: Iterator[Arrival], until_ns: int | None = None) -> int:
        """Play a load, once.

        Args:
            arrivals: In order of time.
            until_ns: The end, or None: when nothing is left to happen, which callers of a closed loop never allow.

        Returns:
            The time of the end.
        """
        end_ns = _NEVER_NS - 1 if until_ns is None else until_ns
        heap, concerned, prompt, hand_in = self._heap, self._concerned, self._prompt, self._hand_in
        arrive = self._enter if self._wire is None else self._send
        upcoming = next(arrivals, _NO_MORE)
        upcoming_ns = upcoming.at_ns
        last_ns = 0
        while (now_ns := min(heap[0][0], upcoming_ns, self._wake_ns)) <= end_ns:
            last_ns = now_ns
            while heap[0][0] == now_ns:
                _, _, handle, subject = heappop(heap)
                handle(subject, now_ns)
            while upcoming_ns == now_ns:
                arrive(upcoming, now_ns)
                upcoming = next(arrivals, _NO_MORE)
                upcoming_ns = upcoming[1]
            if self._wake_ns == now_ns:
                self._wake(now_ns)
            for replica in concerned:
                hand_in(replica, now_ns)
            concerned.clear()
            if prompt:  # the instant goes on, but the schedulers have made use of what became free
                for arrival in prompt:
                    self._plan(now_ns, arrive, arrival)
                prompt.clear()
        return self._finish(last_ns if until_ns is None else until_ns)

    # One instant

    def _plan(self, at_ns: int, handle: Callable[[Any, int], None], subject: object) -> None:
        self._serial += 1
        heappush(self._heap, (at_ns, self._serial, handle, subject))

    def _post(self, replica: Replica, event: Event) -> None:
        if not replica.events:
            self._concerned.append(replica)
        replica.events.append(event)

    def _wake(self, now_ns: int) -> None:
        for replica, wake_ns in zip(self._replicas, self._wakes_ns, strict=True):
            if wake_ns == now_ns:
                self._post(replica, _TIMER)

    def _hand_in(self, replica: Replica, now_ns: int) -> None:
        scheduler = replica.scheduler
        commands = scheduler.handle(replica.events, now_ns)
        replica.events.clear()
        for command in commands:
            for hook in self._tell.commanded:
                hook(now_ns, replica.number, command)
            self._performers[type(command)](replica, command, now_ns)
        wake_ns = scheduler.wake_at_ns
        wakes_ns = self._wakes_ns
        wakes_ns[replica.number] = wake_ns = _NEVER_NS if wake_ns is None else wake_ns
        self._wake_ns = wake_ns if len(wakes_ns) == 1 else min(wakes_ns)

    def _finish(self, now_ns: int) -> int:
        running = [run for replica in self._replicas for run in replica.runs.values()]
        for hook in self._tell.finished:
            hook(now_ns, running)
        return now_ns

    # Planned events

    def _nothing(self, _subject: None, _now_ns: int) -> None:
        """Never called."""

    def _happen(self, subject: tuple[Replica, Event], _now_ns: int) -> None:
        self._post(*subject)

    def _send(self, arrival: Arrival, now_ns: int) -> None:
        if self._wire is not None:
            self._plan(self._wire.entered_ns(now_ns), self._enter, arrival)

    def _enter(self, arrival: Arrival, now_ns: int) -> None:
        choose = self._choose
        replica = self._replicas[0 if choose is None else choose(self._outstanding)]
        _, _, rows, patience_ns, leaves_ns, priority, shape_key, timeout_ns, sequence, _ = arrival
        try:
            ticket = replica.scheduler.reserve(
                rows,
                now_ns,
                deadline_ns=None if patience_ns is None else now_ns + patience_ns,
                priority=priority,
                shape_key=shape_key,
                timeout_ns=timeout_ns,
                sequence=sequence,
            )
        except BatchingError as error:
            self._refuse(arrival, error, now_ns)
            return
        replica.entries[ticket] = (now_ns, arrival)
        events = replica.events
        if not events:
            self._concerned.append(replica)
        events.append(_new_tuple(Arrived, (ticket,)))
        if leaves_ns is not None:
            self._plan(now_ns + leaves_ns, self._leave, (replica, ticket))
        for hook in self._watch_arrivals:
            hook(now_ns, replica.number, arrival)

    def _refuse(self, arrival: Arrival, error: BatchingError, now_ns: int) -> None:
        for hook in self._tell.refused:
            hook(now_ns, arrival, error)
        self._disappoint(arrival, now_ns)

    def _leave(self, subject: tuple[Replica, int], now_ns: int) -> None:
        replica, ticket = subject
        if ticket in replica.entries:
            self._post(replica, Withdrawn(ticket))
            entry = self._lose(replica, ticket, now_ns)
            for hook in self._tell.withdrawn:
                hook(now_ns, entry)

    def _end(self, run: Run, now_ns: int) -> None:
        """A model call has ended. The answers leave now, whatever the instance still has to do."""
        if run.is_aborted:
            return
        replica, batch = self._replicas[run.replica], run.command.batch
        self._post(replica, BatchDone(batch))
        if run.free_ns == now_ns:
            self._free(run, now_ns)
        else:
            self._plan(run.free_ns, self._free, run)
        for hook in self._tell.ended:
            hook(run)
        tickets = replica.finish(run.command)
        if replica.scheduler.preserves_ordering:
            replica.held.update(dict.fromkeys(tickets, run))
        elif tickets:
            self._answer(run, replica.pop(tickets), now_ns)

    def _free(self, run: Run, _now_ns: int) -> None:
        if run.is_aborted:
            return
        replica = self._replicas[run.replica]
        del replica.runs[run.command.batch]
        self._post(replica, InstanceFree(run.command.batch))
        for hook in self._tell.freed:
            hook(run)

    # Commands

    def _start(self, replica: Replica, command: Start, now_ns: int) -> None:
        run = replica.start(command, now_ns)
        self._plan(run.ends_ns, self._end, run)
        for hook in self._tell.started:
            hook(run)

    def _expire(self, replica: Replica, command: Expire, now_ns: int) -> None:
        entry = self._lose(replica, command.ticket, now_ns)
        for hook in self._tell.expired:
            hook(now_ns, entry)

    def _drop(self, replica: Replica, command: Refuse, now_ns: int) -> None:
        entry = self._lose(replica, command.ticket, now_ns)
        for hook in self._tell.dropped:
            hook(now_ns, entry, command.reason)

    def _release(self, replica: Replica, command: Release, now_ns: int) -> None:
        run = replica.held.pop(command.ticket, None)
        if run is not None:  # else the caller left at this very instant
            self._answer(run, replica.pop([command.ticket]), now_ns)

    def _abort(self, replica: Replica, command: Abort, now_ns: int) -> None:
        run = replica.runs.pop(command.batch)
        run.is_aborted = True
        for hook in self._tell.aborted:
            hook(now_ns, run)

    # Ends of requests

    def _answer(self, run: Run, entries: Sequence[Entry], now_ns: int) -> None:
        if self._wire is None:
            answers_ns: Sequence[int] = [now_ns] * len(entries)
        else:
            answers_ns = self._wire.answered_ns(now_ns, len(entries), run.command.rows)
        for hook in self._tell.answered:
            hook(now_ns, run, entries, answers_ns)
        for (_, arrival), at_ns in zip(entries, answers_ns, strict=True):
            if arrival[-1] is not None:
                self._follow_up(arrival[-1].next_request(at_ns, is_answered=True), now_ns)

    def _lose(self, replica: Replica, ticket: int, now_ns: int) -> Entry:
        replica.held.pop(ticket, None)
        (entry,) = replica.pop([ticket])
        self._disappoint(entry[1], now_ns)
        return entry

    def _disappoint(self, arrival: Arrival, now_ns: int) -> None:
        if arrival.sender is not None:
            known_ns = now_ns if self._wire is None else self._wire.refused_ns(now_ns)
            self._follow_up(arrival.sender.next_request(known_ns, is_answered=False), now_ns)

    def _follow_up(self, arrival: Arrival | None, now_ns: int) -> None:
        if arrival is None:
            return
        if arrival.at_ns == now_ns:
            self._prompt.append(arrival)
        else:
            self._plan(arrival.at_ns, self._enter if self._wire is None else self._send, arrival)


class _Hooks:
    """The methods that observers have overridden, so that nobody pays for what nobody watches."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        def overridden(name: str) -> list[Any]:
            blank = getattr(Observer, name)
            return [getattr(observer, name) for observer in observers if getattr(type(observer), name) is not blank]

        self.arrived: list[Callable[[int, int, Arrival], None]] = overridden("arrived")
        self.refused: list[Callable[[int, Arrival, BatchingError], None]] = overridden("refused")
        self.expired: list[Callable[[int, Entry], None]] = overridden("expired")
        self.dropped: list[Callable[..., None]] = overridden("dropped")
        self.withdrawn: list[Callable[[int, Entry], None]] = overridden("withdrawn")
        self.started: list[Callable[[Run], None]] = overridden("started")
        self.ended: list[Callable[[Run], None]] = overridden("ended")
        self.answered: list[Callable[..., None]] = overridden("answered")
        self.freed: list[Callable[[Run], None]] = overridden("freed")
        self.aborted: list[Callable[[int, Run], None]] = overridden("aborted")
        self.commanded: list[Callable[[int, int, Command], None]] = overridden("commanded")
        self.finished: list[Callable[..., None]] = overridden("finished")
