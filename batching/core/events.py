"""What happens to a scheduler. Events of one instant may be handed over together, in any order."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from batching.core.policy import Policy


class Arrived(NamedTuple):
    """The rows of an admitted ticket are ready: it enters the queue."""

    ticket: int


class Withdrawn(NamedTuple):
    """The caller has left, or the rows could not be decoded."""

    ticket: int


class BatchDone(NamedTuple):
    """A started batch has ended, well or badly; its answers are out."""

    batch: int


class InstanceFree(NamedTuple):
    """The instance of a batch can take another one instead; in a live server at the same moment as `BatchDone`."""

    batch: int
    failed: bool = False


class InstanceJoined(NamedTuple):
    """A new instance takes batches, `slots` at once, of at most `max_rows` rows (None: the scheduler's limit)."""

    instance: str
    device: str = "cpu"
    slots: int = 1
    max_rows: int | None = None


class InstanceLeft(NamedTuple):
    """An instance takes no more batches; what it runs still ends with `BatchDone`."""

    instance: str


class CapChanged(NamedTuple):
    """An instance takes batches of at most `max_rows` rows from now on, e.g. after it ran out of memory."""

    instance: str
    max_rows: int


class Reconfigured(NamedTuple):
    """Another policy takes over; batches that have not started go back to the queue."""

    policy: "Policy"


class Timer(NamedTuple):
    """The time is `Scheduler.wake_at_ns` or later."""


Event = (
    Arrived | Withdrawn | BatchDone | InstanceFree | InstanceJoined | InstanceLeft | CapChanged | Reconfigured | Timer
)

# The order within one instant: who has left is not started, then what frees room, so that an arrival finds it.
# Events of one ten are told to the policy together.
ORDER: dict[type, int] = {
    Withdrawn: 0,
    InstanceLeft: 1,
    BatchDone: 10,
    InstanceFree: 11,
    InstanceJoined: 20,
    CapChanged: 20,
    Reconfigured: 20,
    Arrived: 30,
    Timer: 40,
}
