"""The scheduler against an independent little model, under a policy that does anything legal at random.

The model knows pieces of requests, (request, first row), wherever they are. The policy compares its view with it,
chooses a legal action, applies it to the model, and hands it on; the driver does the same with events. What
the scheduler commands and counts must then be what the model expects, and each row runs once.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batching.core.actions import (
    Action,
    Drop,
    Launch,
    Merge,
    Preempt,
    RefusalReason,
    Requeue,
    Seal,
    StartBatch,
    Take,
    Where,
)
from batching.core.batches import CloseReason
from batching.core.commands import Abort, Command, Expire, Refuse, Release, Start
from batching.core.errors import BatchingError, QueueFullError, ShuttingDownError
from batching.core.events import (
    Arrived,
    BatchDone,
    CapChanged,
    Event,
    InstanceFree,
    InstanceJoined,
    InstanceLeft,
    Reconfigured,
    Timer,
    Withdrawn,
)
from batching.core.limits import Limits
from batching.core.news import News
from batching.core.policy import View
from batching.core.queue import QueueOrder
from batching.core.scheduler import Scheduler
from batching.core.tickets import Ticket

LARGEST = 6
LIMITS = Limits(max_batch_rows=LARGEST, max_requests=9, max_rows=24)
UNKNOWN = 10**9
PENDING = ("reserved", "waiting", "staged")
REASON = CloseReason.SIZED


@dataclass(eq=False)
class Piece:
    """Rows of a request that move together. The one with the last rows stands for the request in the limits."""

    request: "Request"
    first: int
    rows: int
    place: str = "reserved"  # waiting, staged, running, done
    delayed: bool = False

    @property
    def key(self) -> tuple[int, int, int]:
        return self.request.id, self.first, self.rows

    @property
    def level(self) -> tuple[int, bool]:
        return self.request.priority, self.delayed


@dataclass(eq=False)
class Request:
    id: int
    rows: int
    priority: int
    shape: str
    deadline_ns: int | None
    arrival_ns: int = 0
    end: str = ""  # how it ended
    pieces: list[Piece] = field(default_factory=list)  # the last one is what is left after the cuts

    @property
    def is_computed(self) -> bool:
        return all(piece.place == "done" for piece in self.pieces)


@dataclass(eq=False)
class Group:
    """A batch: staged, running, or answered with its instance still busy."""

    id: int
    instance: str | None = None
    members: list[Piece] = field(default_factory=list)
    sealed: bool = False
    answered: bool = False

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.members)


@dataclass
class Host:
    slots: int
    cap: int
    busy: int = 0
    leaving: bool = False


class World:
    """The model: what is where, and what the scheduler must command and tell."""

    def __init__(self, order: QueueOrder, *, preserve_ordering: bool, can_abort: bool) -> None:
        self.order, self.preserve_ordering, self.can_abort = order, preserve_ordering, can_abort
        self.requests: dict[int, Request] = {}
        self.waiting: list[Piece] = []
        self.staged: dict[int, Group] = {}
        self.started: dict[int, Group] = {}
        self.hosts: dict[str, Host] = {}
        self.taken: list[Request] = []  # with preserve_ordering: whose answers have not left, in order
        self.counts: Counter[str] = Counter()
        self.expected: list[Command] = []  # but Release
        self.refused: set[int] = set()  # by the engine, in this step
        self.released: list[int] = []
        self.stages: list = []  # of this instant: what happens, and what the policy is told of it
        self.policy: Anything

    # What there is

    @property
    def cap(self) -> int:
        return min([LARGEST, *(host.cap for host in self.hosts.values() if not host.leaving)])

    def idle(self) -> list[str]:
        return [name for name, host in self.hosts.items() if not host.leaving and host.busy < host.slots]

    def alive(self, *places: str) -> list[Request]:
        return [r for r in self.requests.values() if not r.end and (not places or r.pieces[-1].place in places)]

    def pieces(self) -> list[Piece]:
        """Those that may still run or keep a place."""
        return [piece for request in self.requests.values() for piece in request.pieces]

    def fits(self, rows: int) -> bool:
        pending = [piece for piece in self.pieces() if piece.place in PENDING]
        requests = sum(piece is piece.request.pieces[-1] for piece in pending)
        return requests < LIMITS.max_requests and sum(piece.rows for piece in pending) + rows <= LIMITS.max_rows

    def find(self, ticket: Ticket) -> Piece:
        root = ticket
        while root.of is not None:
            root = root.of
        return next(piece for piece in self.requests[root.id].pieces if piece.first == ticket.first_row)

    # Moves

    def take_out(self, piece: Piece) -> None:
        if piece.place == "waiting":
            self.waiting.remove(piece)
        elif piece.place == "staged":
            group = next(group for group in self.staged.values() if piece in group.members)
            group.members.remove(piece)
            if not group.members:
                self.unstage(group)

    def unstage(self, group: Group) -> None:
        del self.staged[group.id]
        if group.instance is not None:
            self.give_back(group.instance)

    def give_back(self, name: str) -> None:
        self.hosts[name].busy -= 1
        if self.hosts[name].leaving and not self.hosts[name].busy:
            del self.hosts[name]

    def requeue(self, pieces: Sequence[Piece], where: Where = Where.FRONT) -> None:
        moved = list(pieces)
        for piece in moved:
            self.take_out(piece)
            piece.place = "waiting"
            piece.delayed |= where is Where.DELAYED
        both = [*moved, *self.waiting] if where is Where.FRONT else [*self.waiting, *moved]
        self.waiting = sorted(both, key=lambda piece: piece.level)

    def end(self, request: Request, how: str, *, keeps_place: bool = False) -> None:
        request.end = how
        self.counts[how] += 1
        for piece in request.pieces:
            if not (keeps_place and piece.place in PENDING):
                self.bury(piece)

    def bury(self, piece: Piece) -> None:
        self.take_out(piece)
        piece.place = "done"

    def refuse(self, request: Request, reason: RefusalReason, *, keeps_place: bool = False) -> None:
        self.end(request, "dropped", keeps_place=keeps_place)
        self.expected.append(Refuse(request.id, reason))

    def put(self, pieces: Sequence[Piece], group: Group) -> None:
        for piece in pieces:
            self.waiting.remove(piece)
            piece.place = "staged"
            if self.preserve_ordering and piece.request not in self.taken:
                self.taken.append(piece.request)
        group.members += pieces

    def cut(self, piece: Piece, rows: int) -> Piece:
        """The first rows become a piece before it."""
        part = Piece(piece.request, piece.first, rows, piece.place, piece.delayed)
        piece.first, piece.rows = piece.first + rows, piece.rows - rows
        piece.request.pieces.insert(piece.request.pieces.index(piece), part)
        self.waiting.insert(self.waiting.index(piece), part)
        return part

    def start(self, group: Group, instance: str | None) -> None:
        for piece in [piece for piece in group.members if piece.request.end]:
            piece.place = "done"  # it only kept its place
            group.members.remove(piece)
        was_staged = group.id in self.staged
        if was_staged and not group.members:
            self.unstage(group)
        if not group.members:
            return
        if was_staged:
            del self.staged[group.id]
        if group.instance is None:
            group.instance = instance
            if instance is not None:
                self.hosts[instance].busy += 1
        for piece in group.members:
            piece.place = "running"
        group.sealed = True
        self.started[group.id] = group
        tickets = tuple(piece.request.id for piece in group.members)
        parts = tuple((piece.first, piece.rows) for piece in group.members)
        self.expected.append(Start(group.id, group.instance or "", tickets, group.rows, REASON, parts=parts))

    # Instants: what happens in which order, and what is news

    def begin(self, events: Sequence[Event], now_ns: int) -> None:
        """Apply what comes before the policy is asked at all, and plan the rest."""
        ended = [event.batch for event in events if isinstance(event, BatchDone | InstanceFree)]
        answered = {number for number in ended if number in self.started and not self.started[number].answered}
        for number in answered:
            self.started[number].answered = True
            for piece in self.started[number].members:
                self.finish(piece)
        self.let_go()
        gone = {event.ticket for event in events if isinstance(event, Withdrawn) and self.withdraw(event.ticket)}
        left = [self.leave(event.instance) for event in events if isinstance(event, InstanceLeft)]
        for request in [r for r in self.alive() if r.deadline_ns is not None and r.deadline_ns <= now_ns]:
            self.end(request, "expired")
            self.expected.append(Expire(request.id))
            gone.add(request.id)
        self.let_go()
        self.plan(events, gone, answered, now_ns, has_left=any(left))

    def plan(self, events: Sequence[Event], gone: set[int], answered: set[int], now_ns: int, *, has_left: bool) -> None:
        freed = {e.batch for e in events if isinstance(e, InstanceFree)} & self.started.keys()
        fleet = [event for event in events if isinstance(event, InstanceJoined | CapChanged | Reconfigured)]
        arrived = [event.ticket for event in events if isinstance(event, Arrived)]
        timer = any(isinstance(event, Timer) for event in events)
        self.stages = [
            lambda: (gone, set(), set(), [], has_left, False),
            lambda: (set(), answered, self.free(freed), [], False, False),
            lambda: self.with_refusals([], True in [self.change(event) for event in fleet]),
            lambda: self.with_refusals([number for number in arrived if self.arrive(number, now_ns)], False),
            lambda: (set(), set(), set(), [], False, timer),
        ]

    def with_refusals(self, arrived: list[int], fleet: bool) -> tuple:
        """News of a step in which the engine may have refused what can never run."""
        refused, self.refused = self.refused, set()
        return refused, set(), set(), arrived, fleet, False

    def next_news(self) -> tuple | None:
        """What the policy hears next, after it has happened; None if nothing is left."""
        while self.stages:
            news = self.stages.pop(0)()
            if any(news):
                return news
        return None

    def finish(self, piece: Piece) -> None:
        if piece.request.end or piece.place == "done":
            return
        piece.place = "done"
        if not self.preserve_ordering and piece.request.is_computed:
            piece.request.end = "answered"

    def let_go(self) -> None:
        while self.taken and (self.taken[0].end or self.taken[0].is_computed):
            first = self.taken.pop(0)
            if not first.end:
                first.end = "answered"
                self.released.append(first.id)

    def withdraw(self, number: int) -> bool:
        request = self.requests.get(number)
        if request is None or request.end:
            return False
        self.end(request, "withdrawn")
        self.let_go()  # who is released now is out, even if its own caller leaves at this instant too
        return True

    def free(self, batches: set[int]) -> set[int]:
        freed = batches & self.started.keys()
        for number in freed:
            self.give_back(self.started.pop(number).instance)
        return freed

    def arrive(self, number: int, now_ns: int) -> bool:
        request = self.requests.get(number)
        if request is None or request.end or request.pieces[-1].place != "reserved":
            return False
        if request.rows > self.cap:
            self.refuse(request, RefusalReason.TOO_MANY_ROWS)
            self.refused.add(request.id)
            return False
        request.arrival_ns = now_ns
        self.requeue(request.pieces, Where.BACK)
        return True

    def leave(self, name: str) -> bool:
        host = self.hosts.get(name)
        if host is None or host.leaving:
            return False
        bound = [group for group in self.staged.values() if group.instance == name]
        self.requeue([piece for group in bound for piece in group.members])
        host.leaving = True
        if not host.busy:
            del self.hosts[name]
        return True

    def change(self, event: Event) -> bool:
        if isinstance(event, Reconfigured):
            self.requeue([piece for group in self.staged.values() for piece in group.members])
            self.order = event.policy.queue_order
            self.waiting.sort(key=lambda piece: (piece.level, piece.request.arrival_ns))
            event.policy.may_reorder = True
            self.policy = event.policy
            return True
        if isinstance(event, CapChanged):
            if event.instance not in self.hosts:
                return False
            self.hosts[event.instance].cap = event.max_rows
        else:
            self.hosts[event.instance] = Host(event.slots, event.max_rows or LARGEST)
        self.shrink()
        return True

    def shrink(self) -> None:
        """Nothing larger than the cap stays."""
        large = [group for group in self.staged.values() if group.rows > self.cap]
        self.requeue([piece for group in large for piece in group.members])
        for piece in [piece for piece in self.waiting if piece.rows > self.cap]:
            if piece.request.end:
                self.bury(piece)
            else:
                self.refuse(piece.request, RefusalReason.TOO_MANY_ROWS)
                self.refused.add(piece.request.id)


class Anything:
    """Checks its view against the world, then does something legal to both."""

    def __init__(self, world: World, random: Random) -> None:
        self.world, self.random = world, random
        self.may_reorder = False  # equal keys come in any order after a change of policy
        self.is_greedy = False
        self.steps_left = 0

    def wake_at_ns(self, view: View) -> int | None:
        return None

    def decide(self, view: View, news: News) -> Sequence[Action]:
        world = self.world
        if news:
            told = world.next_news()
            assert told is not None
            gone, answered, freed, arrived, fleet, timer = told
            assert {ticket.id for ticket in news.gone} == gone
            assert {batch.id for batch in news.answered} == answered
            assert {batch.id for batch in news.freed} == freed
            assert [ticket.id for ticket in news.arrived] == arrived
            assert (news.fleet, news.timer) == (fleet, timer)
            self.steps_left = self.random.randrange(4)
        self.compare(view)
        if self.is_greedy:
            return self.start_something(view)
        self.steps_left -= 1
        if self.steps_left < 0:
            return ()
        return self.random.choice(STEPS)(self, view) or ()

    def compare(self, view: View) -> None:
        world = self.world
        for batch in view.running:  # the scheduler chose the instance
            group = world.started[batch.id]
            if group.instance is None:
                assert batch.instance in world.idle()
                world.hosts[batch.instance].busy += 1
                group.instance = batch.instance
        self.compare_queue(view)
        assert [(b.id, b.instance, b.rows, b.sealed_ns is not None) for b in view.batches] == [
            (group.id, group.instance, group.rows, group.sealed) for group in world.staged.values()
        ]
        for batch in (*view.batches, *view.running):
            group = world.staged.get(batch.id) or world.started[batch.id]
            assert [world.find(ticket) for ticket in batch.tickets] == group.members
        assert {batch.id for batch in view.running} == world.started.keys()
        assert view.idle_slots == sum(world.hosts[name].slots - world.hosts[name].busy for name in world.idle())
        assert [(worker.name, worker.busy) for worker in view.instances] == [
            (name, host.busy) for name, host in world.hosts.items() if not host.leaving
        ]
        assert view.max_batch_rows == world.cap
        assert view.reserved_requests == len(world.alive("reserved"))

    def compare_queue(self, view: View) -> None:
        world = self.world
        actual = [world.find(ticket) for ticket in view.queue]
        if self.may_reorder or world.order is QueueOrder.DEADLINE:
            keys = [self.order_key(piece) for piece in actual]
            assert keys == sorted(keys)
            assert {id(piece) for piece in actual} == {id(piece) for piece in world.waiting}
            world.waiting, self.may_reorder = actual, False
        assert [piece.key for piece in actual] == [piece.key for piece in world.waiting]
        assert [ticket.rows for ticket in view.queue] == [piece.rows for piece in world.waiting]
        assert len(view.queue) == len(actual)
        assert view.queue.rows == sum(piece.rows for piece in actual)
        assert view.queue.first is next(iter(view.queue), None)
        for priority in (0, 1):
            assert view.queue.level_requests(priority) == sum(piece.request.priority == priority for piece in actual)

    def order_key(self, piece: Piece) -> tuple:
        deadline_ns = piece.request.deadline_ns
        no_deadline = self.world.order is QueueOrder.ARRIVAL or deadline_ns is None
        return piece.level, 1 << 62 if no_deadline else deadline_ns, piece.request.arrival_ns

    # Steps: each does one legal thing, or nothing if there is none

    def some_first(self, room: int, shape: str | None, *, least: int = 0) -> tuple[list[Piece], int | None]:
        """First waiting pieces that may share a batch, and how many rows of the last, which is cut then."""
        world = self.world
        wanted = least or self.random.randint(1, 4)
        pieces: list[Piece] = []
        for piece in world.waiting[:wanted]:
            if piece.request.shape != (shape or piece.request.shape) or room < 1:
                break
            shape = piece.request.shape
            if piece.rows > room or (piece.rows > 1 and not self.is_greedy and self.random.random() < 0.4):
                if piece.rows == 1 or self.is_greedy:
                    break
                rows = self.random.randint(1, min(room, piece.rows - 1))
                return [*pieces, world.cut(piece, rows)], rows
            pieces.append(piece)
            room -= piece.rows
        return pieces, None

    def chosen(self, room: int) -> list[Piece]:
        """Any waiting pieces that may share a batch."""
        pieces: list[Piece] = []
        for piece in self.random.sample(self.world.waiting, min(3, len(self.world.waiting))):
            if piece.rows <= room and (not pieces or piece.request.shape == pieces[0].request.shape):
                pieces.append(piece)
                room -= piece.rows
        return pieces

    def an_idle(self) -> str | None:
        return self.random.choice([None, *self.world.idle()])

    def take(self, view: View) -> Sequence[Action]:
        world = self.world
        open_groups = [group for group in world.staged.values() if not group.sealed and group.rows < world.cap]
        into = self.random.choice([None, *open_groups])
        instance = self.an_idle() if into is None else None
        shape = into.members[0].request.shape if into else None
        pieces, rows_of_last = self.some_first(world.cap - (into.rows if into else 0), shape)
        if not pieces:
            return ()
        group = into or Group(view.next_batch, instance)
        if into is None:
            world.staged[group.id] = group
            if instance is not None:
                world.hosts[instance].busy += 1
        world.put(pieces, group)
        action = Take(len(pieces), into.id if into else None, instance, rows_of_last, REASON)
        if self.random.random() < 0.2 and (group.instance is not None or world.idle()):
            return self.followed_by_start(action, group)
        return (action,)

    def followed_by_start(self, action: Take, group: Group) -> Sequence[Action]:
        instance = None if group.instance is not None else self.an_idle()
        self.world.start(group, instance)
        return action, Seal(group.id, REASON), StartBatch(group.id, None, instance)

    def take_chosen(self, view: View) -> Sequence[Action]:
        pieces = self.chosen(self.world.cap)
        if not pieces:
            return ()
        tickets = [ticket for piece in pieces for ticket in view.queue if self.world.find(ticket) is piece]
        group = Group(view.next_batch)
        self.world.put(pieces, group)
        if not self.world.idle():
            self.world.staged[group.id] = group
            return (Take(len(tickets), reason=REASON, tickets=tickets),)
        instance = self.an_idle()
        self.world.start(group, instance)
        return (Launch(len(tickets), REASON, instance, tickets=tickets),)

    def launch(self, view: View) -> Sequence[Action]:
        if not self.world.idle():
            return ()
        pieces, rows_of_last = self.some_first(self.world.cap, None, least=1 if self.is_greedy else 0)
        if not pieces:
            return ()
        group, instance = Group(view.next_batch), self.an_idle()
        self.world.put(pieces, group)
        self.world.start(group, instance)
        return (Launch(len(pieces), REASON, instance, rows_of_last),)

    def merge(self, view: View) -> Sequence[Action]:
        groups = list(self.world.staged.values())
        if len(groups) < 2:
            return ()
        into, source = self.random.sample(groups, 2)
        has_one_shape = into.members[0].request.shape == source.members[0].request.shape
        if into.sealed or into.rows + source.rows > self.world.cap or not has_one_shape:
            return ()
        members = list(source.members)
        self.world.unstage(source)
        into.members += members
        return (Merge(into.id, source.id),)

    def seal(self, view: View) -> Sequence[Action]:
        groups = [group for group in self.world.staged.values() if not group.sealed]
        if not groups:
            return ()
        group = self.random.choice(groups)
        group.sealed = True
        return (Seal(group.id, REASON),)

    def start_batch(self, view: View) -> Sequence[Action]:
        has_idle = bool(self.world.idle())
        groups = [group for group in self.world.staged.values() if group.instance is not None or has_idle]
        if not groups:
            return ()
        group = self.random.choice(groups)
        instance = self.an_idle() if group.instance is None else None
        self.world.start(group, instance)
        return (StartBatch(group.id, REASON, instance),)

    def some_tickets(self, view: View) -> list[Ticket]:
        tickets = [*view.queue, *(ticket for batch in view.batches for ticket in batch.tickets)]
        return self.random.sample(tickets, min(len(tickets), self.random.randint(1, 3)))

    def drop(self, view: View) -> Sequence[Action]:
        if self.random.random() < 0.5:
            return ()  # or too few live on
        by_request = {self.world.find(ticket).request: ticket for ticket in self.some_tickets(view)}
        chosen = {request: ticket for request, ticket in by_request.items() if not request.end}
        keeps_place = self.random.random() < 0.5
        for request in chosen:
            self.world.refuse(request, RefusalReason.HOPELESS, keeps_place=keeps_place)
        return (Drop(list(chosen.values()), RefusalReason.HOPELESS, keeps_place),) if chosen else ()

    def requeue(self, view: View) -> Sequence[Action]:
        tickets = self.some_tickets(view)
        where = self.random.choice(list(Where))
        self.world.requeue([self.world.find(ticket) for ticket in tickets], where)
        return (Requeue(tickets, where),) if tickets else ()

    def preempt(self, view: View) -> Sequence[Action]:
        world = self.world
        groups = [group for group in world.started.values() if not group.answered]
        if not groups or not view.can_abort:
            return ()
        group = self.random.choice(groups)
        del world.started[group.id]
        world.give_back(group.instance)
        world.requeue([piece for piece in group.members if piece.place == "running"])
        world.expected.append(Abort(group.id))
        return (Preempt(group.id),)

    def start_something(self, view: View) -> Sequence[Action]:
        return self.start_batch(view) or self.launch(view)


STEPS = [
    Anything.take, Anything.take, Anything.take_chosen, Anything.launch, Anything.launch, Anything.merge, Anything.seal,
    Anything.start_batch, Anything.drop, Anything.requeue, Anything.preempt,
]  # fmt: skip


class AnythingByArrival(Anything):
    queue_order = QueueOrder.ARRIVAL


class AnythingByDeadline(Anything):
    queue_order = QueueOrder.DEADLINE


POLICIES = [AnythingByArrival, AnythingByDeadline]


class Drive:
    """The driver: random events, and what becomes of the commands."""

    def __init__(self, random: Random, *, preserve_ordering: bool = False, can_abort: bool = False) -> None:
        self.random = random
        kind = random.choice(POLICIES)
        self.world = World(kind.queue_order, preserve_ordering=preserve_ordering, can_abort=can_abort)
        self.world.policy = kind(self.world, random)
        how = {"preserve_ordering": preserve_ordering, "can_abort": can_abort}
        self.scheduler = Scheduler(self.world.policy, LIMITS, **how)
        self.now_ns = 0
        self.joined = 0
        self.runs: dict[int, Counter[int]] = {}  # how often each row of a request was started and not aborted
        self.commands: dict[int, Start] = {}
        self.join()

    def reserve(self) -> Sequence[Event]:
        rows, priority = self.random.randint(1, LARGEST), self.random.randint(0, 1)
        deadline_ns = self.random.choice([None, self.now_ns + self.random.choice([1, 5, 30])])
        shape = "q" if self.random.random() < 0.2 else "p"
        fits = rows <= self.world.cap and self.world.fits(rows)
        try:
            number = self.scheduler.reserve(
                rows, self.now_ns, deadline_ns=deadline_ns, priority=priority, shape_key=shape
            )
        except BatchingError:
            assert not fits
            self.world.counts["refused"] += 1
        else:
            assert fits
            request = Request(number, rows, priority, shape, deadline_ns)
            request.pieces.append(Piece(request, 0, rows))
            self.world.requests[number] = request
            self.runs[number] = Counter()
        return self.arrive() if self.random.random() < 0.8 else ()

    def join(self) -> InstanceJoined | None:
        if len(self.world.hosts) == 3:
            return None
        self.joined += 1
        cap = self.random.choice([None, None, 3, LARGEST])
        return InstanceJoined(f"i{self.joined}", self.random.choice("ab"), self.random.randint(1, 2), cap)

    def some_events(self) -> Sequence[Event | None]:
        kinds = [self.reserve, self.arrive, self.end_batch, self.change_fleet, self.rarely]
        return self.random.choices(kinds, weights=[4, 2, 2, 2, 2])[0]()

    def arrive(self) -> Sequence[Event]:
        return [Arrived(request.id) for request in self.world.alive("reserved")[: self.random.randint(1, 4)]]

    def end_batch(self) -> Sequence[Event]:
        """Often both events together, as in a live server."""
        if not self.world.started:
            return ()
        number = self.random.choice(list(self.world.started))
        both = [BatchDone(number), InstanceFree(number)]
        return self.random.choice([both, both[:1], both[1:]])

    def change_fleet(self) -> Sequence[Event | None]:
        name = self.random.choice([*self.world.hosts, "nobody"])
        cap = self.random.choice([1, 2, 4, LARGEST, LARGEST])
        return [self.random.choice([self.join(), self.join(), InstanceLeft(name), CapChanged(name, cap)])]

    def rarely(self) -> Sequence[Event]:
        alive = self.world.alive()
        if alive and self.random.random() < 0.5:
            return [Withdrawn(self.random.choice(alive).id)]
        if self.random.random() < 0.3:
            return [Reconfigured(self.random.choice(POLICIES)(self.world, self.random))]
        strange = [Arrived(UNKNOWN), Withdrawn(UNKNOWN), BatchDone(UNKNOWN), InstanceFree(UNKNOWN), Timer()]
        return [self.random.choice(strange)]

    def instant(self, events: Sequence[Event | None]) -> None:
        """Hand events over, at most one of each kind that changes the fleet, and look at everything."""
        events = [event for event in events if event is not None]
        if self.scheduler.wake_at_ns is not None and self.scheduler.wake_at_ns <= self.now_ns:
            events.append(Timer())
        self.random.shuffle(events)
        self.world.begin(events, self.now_ns)
        commands = self.scheduler.handle(events, self.now_ns)
        assert self.world.next_news() is None
        self.world.let_go()
        self.look_at(commands)
        self.look_at_statistics()

    def look_at(self, commands: Sequence[Command]) -> None:
        world = self.world
        assert [command.ticket for command in commands if isinstance(command, Release)] == world.released
        others = [command for command in commands if not isinstance(command, Release)]
        assert Counter(filter(is_of_engine, others)) == Counter(filter(is_of_engine, world.expected))
        others = [command for command in others if not is_of_engine(command)]
        expected = [command for command in world.expected if not is_of_engine(command)]
        assert [same_terms(command) for command in others] == [same_terms(command) for command in expected]
        for command in others:
            self.count_runs(command)
            if isinstance(command, Start) and command.batch in world.started:
                assert world.started[command.batch].instance in (None, command.instance)
        world.expected, world.released = [], []

    def count_runs(self, command: Command) -> None:
        start = self.commands.get(command.batch) if isinstance(command, Abort) else command
        if not isinstance(start, Start):
            return
        self.commands[start.batch] = start
        for number, part in zip(start.tickets, terms_of_parts(start, self.world), strict=True):
            for row in range(part[0], part[0] + part[1]):
                self.runs[number][row] += 1 if start is command else -1
                assert self.runs[number][row] in (0, 1)

    def look_at_statistics(self) -> None:
        world, statistics = self.world, self.scheduler.statistics()
        pending = [piece for piece in world.pieces() if piece.place in ("waiting", "staged")]
        assert statistics.waiting_rows == sum(piece.rows for piece in pending)
        assert statistics.waiting_requests == len({piece.request.id for piece in pending})
        assert statistics.reserved_requests == len(world.alive("reserved"))
        assert statistics.running_batches == sum(not group.answered for group in world.started.values())
        assert statistics.instances == sum(not host.leaving for host in world.hosts.values())
        assert statistics.admitted_requests == len(world.requests)
        for counter in ("refused", "dropped", "expired", "withdrawn"):
            assert getattr(statistics, f"{counter}_requests") == world.counts[counter]
        assert self.scheduler.is_empty == (not world.alive() and not statistics.running_batches)
        for request in world.requests.values():
            if request.end == "answered":
                assert self.runs[request.id] == Counter(range(request.rows))

    def end(self) -> None:
        """Let everything run out; then the limits must admit as much as at first, and no more."""
        self.world.policy.is_greedy = True
        self.instant(
            [InstanceJoined("last", "a", 1), *(Arrived(request.id) for request in self.world.alive("reserved"))]
        )
        while self.world.started:
            self.now_ns += 1
            self.instant([InstanceFree(number) for number in self.world.started])
        assert self.scheduler.is_empty
        assert not self.world.waiting
        assert not self.world.staged
        for _ in range(LIMITS.max_requests):
            self.scheduler.reserve(1, self.now_ns)
        with pytest.raises(QueueFullError):
            self.scheduler.reserve(1, self.now_ns)
        self.scheduler.close()
        with pytest.raises(ShuttingDownError):
            self.scheduler.reserve(1, self.now_ns)


def is_of_engine(command: Command) -> bool:
    """Whether it is not the policy's doing; the order of these is that of a queue which the model may not know."""
    return isinstance(command, Expire) or (
        isinstance(command, Refuse) and command.reason is RefusalReason.TOO_MANY_ROWS
    )


def same_terms(command: Command) -> tuple:
    """What the model can know of a command: not the times, and not which instance the scheduler chose."""
    if isinstance(command, Start):
        return command.batch, command.tickets, command.rows
    return tuple(command)


def terms_of_parts(start: Start, world: World) -> list[tuple[int, int]]:
    if start.parts is not None:
        return [tuple(part) for part in start.parts]
    return [(0, world.requests[number].rows) for number in start.tickets]


def drive(random: Random, steps: int, *, preserve_ordering: bool, can_abort: bool) -> None:
    """One random history."""
    driver = Drive(random, preserve_ordering=preserve_ordering, can_abort=can_abort)
    driver.instant([driver.join()])
    for _ in range(steps):
        driver.now_ns += random.choice([0, 1, 1, 7])
        driver.instant([event for _ in range(random.randint(1, 3)) for event in driver.some_events()])
    driver.end()


@settings(max_examples=500)
@given(
    seed=st.integers(0, 2**32 - 1), steps=st.integers(1, 40), preserve_ordering=st.booleans(), can_abort=st.booleans()
)
def test_whatever_a_policy_does_every_request_ends_once_and_nothing_is_lost(seed, steps, preserve_ordering, can_abort):
    random = Random(seed)  # noqa: S311 - a game of chance
    drive(random, steps, preserve_ordering=preserve_ordering, can_abort=can_abort)
