"""What happens to a scheduler. Events of one instant may be handed over together, in any order."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arrived:
    """The rows of an admitted ticket are ready: it enters the queue."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The caller has left, or the rows could not be decoded."""

    ticket: int


@dataclass(frozen=True, slots=True)
class BatchDone:
    """A started batch has ended, well or badly; its callers have their answers."""

    batch: int


@dataclass(frozen=True, slots=True)
class InstanceFree:
    """An instance can hold one more batch than before; in a live server at the same moment as `BatchDone`."""

    instance: str


@dataclass(frozen=True, slots=True)
class InstanceJoined:
    """A new instance takes batches, `slots` at once."""

    instance: str
    device: str = "cpu"
    slots: int = 1


@dataclass(frozen=True, slots=True)
class InstanceLeft:
    """An instance takes no more batches; what it runs still ends with `BatchDone`."""

    instance: str


@dataclass(frozen=True, slots=True)
class Timer:
    """The time is `Scheduler.wake_at_ns` or later."""


Event = Arrived | Withdrawn | BatchDone | InstanceFree | InstanceJoined | InstanceLeft | Timer

# The order within one instant: who has left is not started, then what frees room, so that an arrival finds it.
ORDER: dict[type, int] = {
    Withdrawn: 0,
    BatchDone: 1,
    InstanceFree: 1,
    InstanceJoined: 2,
    InstanceLeft: 2,
    Arrived: 3,
    Timer: 4,
}
