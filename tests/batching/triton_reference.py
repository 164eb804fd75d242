"""Triton's dynamic batcher once more, as plainly as possible: lists, and everything looked at anew each time.

A small simulation of its own, without the scheduler: threads that react at once, one request after another. At one
instant completions come first, then arrivals, then timers; an instance takes its next payload before the batcher looks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from batching.policies.triton import QueuePolicy, TritonSettings
from batching.simulation import Arrival

POLL_NS = 500_000_000
US = 1_000


@dataclass
class Request:
    arrival: Arrival
    latest_ns: int | None


@dataclass
class Payload:
    members: list[Request] = field(default_factory=list)
    is_executing: bool = False
    is_mixed: bool = False

    @property
    def rows(self) -> int:
        return sum(member.arrival.rows for member in self.members)


@dataclass
class Level:
    policy: QueuePolicy
    queue: list[Request] = field(default_factory=list)
    delayed: list[Request] = field(default_factory=list)


@dataclass
class Reference:
    settings: TritonSettings
    largest: int
    instances: int
    service_ns: Callable[[int], int]
    binds_late: bool
    started: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    rejected: list[tuple[str, int]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings = self.settings
        self.preferred = sorted(settings.preferred_batch_size) or [self.largest]
        self.delay_ns = settings.max_queue_delay_microseconds * US
        self.levels = {
            level: Level(settings.priority_queue_policy.get(level, settings.default_queue_policy))
            for level in (range(1, settings.priority_levels + 1) if settings.priority_levels else [0])
        }
        self.staged: list[Payload] = []
        self.open = Payload()
        self.is_saturated = False
        self.next_preferred = 0
        self.phantom_rows = 0
        self.idle = self.instances
        self.ends: list[int] = []
        self.now_ns = 0
        self.state = "sleeping"  # awake, sleeping (until a notification or `until_ns`), waiting for a slot
        self.until_ns = POLL_NS
        self.is_timed = False

    # Events

    def run(self, load: Sequence[Arrival]) -> "Reference":
        coming = sorted(load, key=lambda arrival: arrival.at_ns)
        while coming or self.ends or (self.requests() and self.state != "awake"):
            moments = [*self.ends, *(arrival.at_ns for arrival in coming[:1])]
            self.now_ns = min([*moments, *([] if self.state == "awake" else [self.until_ns])])
            if ended := [at_ns for at_ns in self.ends if at_ns == self.now_ns]:
                self.ends = [at_ns for at_ns in self.ends if at_ns != self.now_ns]
                self.idle += len(ended)
                self.notify()
                self.settle()
            before = len(self.requests())
            arrived = [arrival for arrival in coming if arrival.at_ns == self.now_ns]
            coming = coming[len(arrived) :]
            self.enqueue(arrived)
            if len(self.requests()) > before or self.now_ns >= self.until_ns:  # who is refused is no event
                self.ring(may_look=before > 0)
                self.settle()
        return self

    def enqueue(self, arrived: list[Arrival]) -> None:
        accepted = 0
        for arrival in arrived:
            level = self.levels[arrival.priority]
            limit = level.policy.max_queue_size
            if limit and len(level.queue) + len(level.delayed) >= limit:
                self.refused.append(arrival.name)
                self.phantom_rows += arrival.rows
            else:
                level.queue.append(Request(arrival, self.latest_ns(level.policy, arrival)))
                accepted += 1
        if not accepted:
            return
        renews = self.is_saturated or self.open.is_executing
        queued = sum(request.arrival.rows for request in self.requests()) + self.phantom_rows
        if self.has_slot() and (self.settings.check_shapes or renews or queued >= self.next_preferred):
            self.notify()

    def latest_ns(self, policy: QueuePolicy, arrival: Arrival) -> int | None:
        timeout_ns = policy.default_timeout_microseconds * US
        if policy.allow_timeout_override and arrival.timeout_ns is not None and 0 < arrival.timeout_ns < timeout_ns:
            timeout_ns = arrival.timeout_ns
        return arrival.at_ns + timeout_ns if timeout_ns else None

    def notify(self) -> None:
        if self.state == "sleeping" or (self.state == "waiting" and self.has_slot()):
            self.state = "awake"

    def ring(self, *, may_look: bool) -> None:
        if self.state == "awake" or self.now_ns < self.until_ns:
            return
        if self.state == "waiting":
            self.reject_all()
        self.until_ns += POLL_NS
        if may_look or self.is_timed:
            self.state = "awake"

    # Threads

    def settle(self) -> None:
        while self.dequeue() or self.loop():
            pass

    def dequeue(self) -> bool:
        if not self.idle or not self.staged:
            return False
        payload = self.staged.pop(0)
        payload.is_executing = True
        while self.delay_ns and self.largest > 1 and not payload.is_mixed and self.staged:
            follower = self.staged[0]
            if follower.is_mixed or self.now_ns - follower.members[0].arrival.at_ns <= self.delay_ns:
                break
            follower.is_executing = True
            same = follower.members[0].arrival.shape_key == payload.members[0].arrival.shape_key
            if payload.rows + follower.rows > self.largest or not same:
                break
            payload.members += self.staged.pop(0).members
        self.idle -= 1
        self.ends.append(self.now_ns + self.service_ns(payload.rows))
        self.started.append((self.now_ns, tuple(member.arrival.name for member in payload.members)))
        self.state = "awake"
        return True

    def loop(self) -> bool:
        """One round of the batcher; False when it waits."""
        if self.state != "awake":
            return False
        if self.is_saturated or self.open.is_executing:
            self.open, self.is_saturated, self.next_preferred = Payload(), False, 0
        if not self.requests():
            return self.sleep("sleeping", POLL_NS)
        if not self.has_slot():
            return self.sleep("waiting", POLL_NS)
        count, wait_ns = self.form()
        if wait_ns:
            return self.sleep("sleeping", wait_ns, is_timed=True)
        if not count:
            return self.is_saturated or not self.requests()
        if not self.open.members:
            self.staged.append(self.open)
        self.open.members += [self.pop() for _ in range(count)]
        return True

    def sleep(self, state: str, wait_ns: int, *, is_timed: bool = False) -> bool:
        self.state, self.until_ns, self.is_timed = state, self.now_ns + wait_ns, is_timed
        return False

    def has_slot(self) -> bool:
        return self.idle > len(self.staged) if self.binds_late else len(self.staged) < 2 * self.instances

    # The queue

    def requests(self) -> list[Request]:
        return [request for level in self.levels.values() for request in level.queue + level.delayed]

    def pop(self) -> Request:
        line = next(line for level in self.levels.values() for line in (level.queue, level.delayed) if line)
        return line.pop(0)

    def is_late(self, request: Request) -> bool:
        return request.latest_ns is not None and self.now_ns > request.latest_ns

    def reject_all(self) -> None:
        for level in self.levels.values():
            if level.policy.timeout_action == "REJECT":
                for request in [request for request in level.queue if self.is_late(request)]:
                    level.queue.remove(request)
                    self.rejected.append((request.arrival.name, self.now_ns))
                    self.phantom_rows += request.arrival.rows

    def at_cursor(self, pending: int) -> Request | None:
        """The request behind so many pending ones, after all late ones before it were put away."""
        for level in self.levels.values():
            while pending < len(level.queue) and self.is_late(level.queue[pending]):
                late = level.queue.pop(pending)
                if level.policy.timeout_action == "REJECT":
                    self.rejected.append((late.arrival.name, self.now_ns))
                else:
                    late.latest_ns = None
                    level.delayed.append(late)
            line = level.queue + level.delayed
            if pending < len(line):
                return line[pending]
            pending -= len(line)
        return None

    def form(self) -> tuple[int, int]:
        """Requests to send, or how long to wait."""
        opened, rows, best, stops = self.open.rows, 0, 0, False
        first = self.open.members[0] if self.open.members else None
        pending: list[Request] = []
        while (request := self.at_cursor(len(pending))) is not None:
            total = opened + rows + request.arrival.rows
            if opened or pending:
                if total > self.preferred[-1] and not best:
                    best, self.is_saturated = len(pending), True
                if total > self.largest:
                    stops = True
                    break
                if first and request.arrival.shape_key != first.arrival.shape_key:
                    self.open.is_mixed = stops = True
                    break
            first = first or request
            pending.append(request)
            rows += request.arrival.rows
            if total in self.preferred:
                best = len(pending)
        return self.choose(pending, opened, rows, best, stops=stops)

    def choose(self, pending: list[Request], opened: int, rows: int, best: int, *, stops: bool) -> tuple[int, int]:
        age_ns = self.now_ns - min((request.arrival.at_ns for request in pending), default=0)
        exceeded = 0 < self.delay_ns <= age_ns
        if best and not exceeded:
            self.is_saturated = self.is_saturated or not self.delay_ns
            return best, 0
        if not pending:
            return 0, 0
        if stops or opened + rows >= self.preferred[-1]:
            self.is_saturated = True
            return len(pending), 0
        if exceeded or not self.delay_ns:
            return len(pending), 0
        return self.grow_or_wait(pending, opened, rows, self.delay_ns - age_ns)

    def grow_or_wait(self, pending: list[Request], opened: int, rows: int, wait_ns: int) -> tuple[int, int]:
        self.next_preferred = min(size for size in self.preferred if size > opened + rows) - opened
        if opened and not self.is_saturated and opened not in self.preferred:
            return len(pending), 0
        nearest_ns = min((request.latest_ns for request in pending if request.latest_ns is not None), default=None)
        if nearest_ns is None or nearest_ns - self.now_ns > wait_ns:
            return 0, wait_ns
        return 0, nearest_ns - self.now_ns + 1  # a thread wakes after the timeout, not at it
