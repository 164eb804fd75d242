"""The scheduler against an independent little model of what it must keep, on random events, illegal ones included."""

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from batching.clock import MICROSECOND_NS
from batching.core.commands import Expire, Start
from batching.core.errors import BatchingError
from batching.core.events import (
    Arrived,
    BatchDone,
    Event,
    InstanceFree,
    InstanceJoined,
    InstanceLeft,
    Timer,
    Withdrawn,
)
from batching.core.limits import Limits
from batching.core.scheduler import Scheduler
from batching.policies.greedy import Greedy
from batching.policies.triton import TritonSettings, create_triton

pytestmark = pytest.mark.long

LARGEST = 6
LIMITS = Limits(max_batch_rows=LARGEST, max_requests=12, max_rows=30)
UNKNOWN = 10**9


@dataclass
class Request:
    rows: int
    deadline_ns: int | None
    shape: str
    place: str = "reserved"  # reserved, waiting, running, ended


@dataclass
class Running:
    members: tuple[int, ...]
    instance: str


@dataclass
class Host:
    slots: int
    busy: int = 0
    leaving: bool = False
    known: bool = False  # the scheduler has been told


@dataclass
class Instant:
    """Events that will be handed over together, and what they mean."""

    events: list[Event] = field(default_factory=list)
    arrived: set[int] = field(default_factory=set)
    withdrawn: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(
        name=st.sampled_from(["greedy", "single", "triton"]),
        delay_us=st.sampled_from([0, 300]),
        preferred=st.sampled_from([(), (2,), (2, 4)]),
        check_shapes=st.booleans(),
    )
    def start(self, name, delay_us, preferred, check_shapes):
        shapes = TritonSettings(
            preferred_batch_size=preferred, max_queue_delay_microseconds=delay_us, check_shapes=check_shapes
        )
        policies = {"greedy": Greedy(), "single": Greedy(1), "triton": create_triton(shapes, LARGEST)}
        self.scheduler = Scheduler(policies[name], LIMITS)
        self.now_ns = 0
        self.requests: dict[int, Request] = {}
        self.running: dict[int, Running] = {}
        self.hosts: dict[str, Host] = {}
        self.joined = 0
        self.instant = Instant()

    def in_place(self, *places: str) -> list[int]:
        return [number for number, request in self.requests.items() if request.place in places]

    @rule(us=st.sampled_from([0, 1, 100, 300, 5_000]))
    def time_passes(self, us):
        self.now_ns += us * MICROSECOND_NS

    @rule(rows=st.integers(1, LARGEST), patience_us=st.sampled_from([None, 1, 200, 4_000]), shape=st.sampled_from("pq"))
    def reserve(self, rows, patience_us, shape):
        deadline_ns = None if patience_us is None else self.now_ns + patience_us * MICROSECOND_NS
        pending = self.in_place("reserved", "waiting")
        fits = len(pending) < 12 and sum(self.requests[number].rows for number in pending) + rows <= 30
        try:
            number = self.scheduler.reserve(rows, self.now_ns, deadline_ns=deadline_ns, shape_key=shape)
        except BatchingError:
            assert not fits
        else:
            assert fits
            self.requests[number] = Request(rows, deadline_ns, shape)

    @precondition(lambda self: self.in_place("reserved"))
    @rule(data=st.data())
    def arrive(self, data):
        number = data.draw(st.sampled_from(self.in_place("reserved")))
        self.instant.events.append(Arrived(number))
        self.instant.arrived.add(number)

    @precondition(lambda self: self.in_place("reserved", "waiting", "running"))
    @rule(data=st.data())
    def withdraw(self, data):
        number = data.draw(st.sampled_from(self.in_place("reserved", "waiting", "running")))
        self.instant.events.append(Withdrawn(number))
        self.instant.withdrawn.add(number)

    @precondition(lambda self: self.running.keys() - self.instant.done)
    @rule(data=st.data())
    def finish(self, data):
        batch = data.draw(st.sampled_from(sorted(self.running.keys() - self.instant.done)))
        self.instant.events += [BatchDone(batch), InstanceFree(batch)]
        self.instant.done.add(batch)

    @rule(
        event=st.sampled_from(
            [
                Arrived(UNKNOWN),
                Withdrawn(UNKNOWN),
                InstanceLeft("nobody"),
                BatchDone(UNKNOWN),
                InstanceFree(UNKNOWN),
                Timer(),
            ]
        )
    )
    def nonsense(self, event):
        self.instant.events.append(event)

    @precondition(lambda self: len(self.hosts) < 3)
    @rule(slots=st.integers(1, 2))
    def join(self, slots):
        self.joined += 1
        self.hosts[f"i{self.joined}"] = Host(slots)
        self.instant.events.append(InstanceJoined(f"i{self.joined}", "cpu", slots))

    @precondition(lambda self: any(host.known for host in self.hosts.values()))
    @rule(data=st.data())
    def leave(self, data):
        name = data.draw(st.sampled_from(sorted(name for name, host in self.hosts.items() if host.known)))
        self.hosts[name].leaving = True
        self.instant.events.append(InstanceLeft(name))

    @precondition(lambda self: self.instant.events)
    @rule(random=st.randoms(use_true_random=False))
    def hand_over(self, random):
        instant, self.instant = self.instant, Instant()
        random.shuffle(instant.events)
        commands = self.scheduler.handle(instant.events, self.now_ns)
        self.expect(instant)
        for host in self.hosts.values():
            host.known = True
        for command in commands:
            self.obey(command)
        self.hosts = {name: host for name, host in self.hosts.items() if host.busy or not host.leaving}
        late = [r for r in self.requests.values() if r.deadline_ns is not None and r.deadline_ns <= self.now_ns]
        assert all(request.place == "ended" for request in late)
        assert self.scheduler.wake_at_ns is None or self.scheduler.wake_at_ns > self.now_ns

    def expect(self, instant: Instant) -> None:
        for batch in instant.done:
            ended = self.running.pop(batch)
            self.hosts[ended.instance].busy -= 1
            for number in ended.members:
                self.requests[number].place = "ended"
        for number in instant.withdrawn:
            self.requests[number].place = "ended"
        for number in instant.arrived:
            if self.requests[number].place == "reserved":
                self.requests[number].place = "waiting"

    def obey(self, command: Start | Expire) -> None:
        if isinstance(command, Expire):
            request = self.requests[command.ticket]
            assert request.place != "ended"
            assert request.deadline_ns is not None
            assert request.deadline_ns <= self.now_ns
            request.place = "ended"
            return
        members = [self.requests[number] for number in command.tickets]
        assert all(member.place == "waiting" for member in members)
        assert len({member.shape for member in members}) == 1
        assert sum(member.rows for member in members) == command.rows <= LARGEST
        host = self.hosts[command.instance]
        assert host.busy < host.slots
        assert not host.leaving
        host.busy += 1
        for member in members:
            member.place = "running"
        self.running[command.batch] = Running(command.tickets, command.instance)

    @invariant()
    def gauges_are_true(self):
        if self.instant.events:
            return
        statistics = self.scheduler.statistics()
        waiting = [self.requests[number] for number in self.in_place("waiting")]
        assert statistics.waiting_requests == len(waiting)
        assert statistics.waiting_rows == sum(request.rows for request in waiting)
        assert statistics.reserved_requests == len(self.in_place("reserved"))
        assert statistics.running_batches == len(self.running)
        assert statistics.admitted_requests == len(self.requests)
        assert statistics.instances == sum(not host.leaving for host in self.hosts.values())


TestRandomEvents = SchedulerMachine.TestCase
TestRandomEvents.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
