"""A batch from its opening until its instance is free again."""

import enum
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import overload

from typing_extensions import override

from batching.core.tickets import Ticket


class CloseReason(enum.Enum):
    """Why a batch was closed with the size that it has."""

    FULL = "full"  # no further row fits
    PREFERRED = "preferred"  # a preferred size was reached
    OVERFLOW = "overflow"  # the next request does not fit
    SHAPE = "shape"  # the next request has another shape
    DELAY = "delay"  # the oldest request, or the batch, has waited long enough
    EAGER = "eager"  # nothing more was there and waiting was not wanted
    SPLIT = "split"  # filled up with the first rows of a request that was cut
    SIZED = "sized"  # the policy chose this size by the time that it takes
    DEADLINE = "deadline"  # waiting longer, or for more, would have missed a deadline


class Batch:
    """Policies read it; only the scheduler changes it.

    Attributes:
        id: Names it in actions, commands and events; ascending in order of opening.
        tickets: Members in order.
        rows: Their rows.
        reason: Why it was closed.
        opened_ns: When it got its first member.
        sealed_ns: When it was closed, or None.
        started_ns: When it started, or None.
        instance: The instance that it is bound to or runs on, or None.
        busy_ns: How long it occupied its instance, once that is free again: from its start, or from the end of the
            batch before it there, whatever came last.
        failed: Its execution raised an error.
        is_running: It was started and its answers are not out.
    """

    __slots__ = (
        "busy_ns", "failed", "id", "instance", "is_running", "opened_ns", "reason", "rows", "sealed_ns", "started_ns",
        "tickets",
    )  # fmt: skip

    def __init__(self, number: int, opened_ns: int, instance: str | None = None) -> None:
        self.id = number
        self.tickets: list[Ticket] = []
        self.rows = 0
        self.reason = CloseReason.EAGER
        self.opened_ns = opened_ns
        self.sealed_ns: int | None = None
        self.started_ns: int | None = None
        self.instance = instance
        self.busy_ns = 0
        self.failed = False
        self.is_running = False


class StagedBatches(Sequence[Batch]):
    """Batches in the order in which they were opened. Both ends and single batches are found at once, however many.

    Policies see it as it is at any moment: it changes when one is opened, starts or loses its last member.
    """

    def __init__(self) -> None:
        # Not a dict: finding the first entry of one scans the slots of what was taken from its front before.
        self._by_id: OrderedDict[int, Batch] = OrderedDict()

    @override
    def __len__(self) -> int:
        return len(self._by_id)

    @override
    def __iter__(self) -> Iterator[Batch]:
        return iter(self._by_id.values())

    @override
    def __contains__(self, batch: object) -> bool:
        return isinstance(batch, Batch) and batch.id in self._by_id

    @overload
    def __getitem__(self, index: int) -> Batch: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Batch]: ...
    @override
    def __getitem__(self, index: int | slice) -> Batch | Sequence[Batch]:
        if self._by_id and index == 0:
            return next(iter(self._by_id.values()))
        if self._by_id and index == -1:
            return next(reversed(self._by_id.values()))
        return tuple(self._by_id.values())[index]

    def add(self, batch: Batch) -> None:
        """The newest one."""
        self._by_id[batch.id] = batch

    def find(self, number: int) -> Batch | None:
        """By id."""
        return self._by_id.get(number)

    def discard(self, batch: Batch) -> bool:
        """Forget one. Returns whether it was here."""
        return self._by_id.pop(batch.id, None) is not None
