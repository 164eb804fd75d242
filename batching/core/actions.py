"""What a policy can do. `requests` always means the first `requests` waiting requests.

Two ways to start a batch: `Launch` takes requests and starts them in one step (late binding); `Take` moves them into a
batch that may grow, be merged, be bound to an instance and wait, until `StartBatch` starts it.
"""

import enum
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from batching.core.batches import CloseReason
from batching.core.tickets import Ticket


class RefusalReason(enum.Enum):
    """Why a policy gives a request no answer."""

    QUEUE_FULL = "queue_full"  # the original's limit, where it counts something else than requests and rows
    TIMEOUT = "timeout"  # the original's own queue timeout
    HOPELESS = "hopeless"  # its deadline cannot be met, or only at the cost of others
    OVERLOADED = "overloaded"  # shed in order to keep the others in time
    TOO_MANY_ROWS = "too_many_rows"  # the largest batch has become smaller than it
    SEQUENCE = "sequence"  # its sequence is unknown, ended, timed out or has no slot


class Where(enum.Enum):
    """Places in the queue to put requests back to."""

    FRONT = "front"  # before all others of their level, in the given order
    BACK = "back"  # after all others of their level
    DELAYED = "delayed"  # after all others of their level for good, before the next level


class Launch(NamedTuple):
    """Start requests on `instance`, or on the best idle one. `rows_of_last` and `tickets` as in `Take`.

    `slots`, in order of the members, is told to the driver: places in the batch that models of sequences rely on.
    """

    requests: int
    reason: CloseReason
    instance: str | None = None
    rows_of_last: int | None = None
    tickets: Sequence[Ticket] | None = None
    slots: tuple[int, ...] | None = None


class Take(NamedTuple):
    """Move requests into a batch: `into`, or a new one.

    A new batch with an `instance` is bound to it and occupies one of its slots from now on ("collecting").
    `rows_of_last` takes only so many rows of the last request: the rest stays first in the queue. `reason` says why
    the batch has its size as it is now; `Seal` and `StartBatch` may say otherwise. `tickets` chooses waiting requests,
    `requests` many, in this order, instead of the first ones; none of them is cut.
    """

    requests: int
    into: int | None = None
    instance: str | None = None
    rows_of_last: int | None = None
    reason: CloseReason | None = None
    tickets: Sequence[Ticket] | None = None


class Merge(NamedTuple):
    """Append the members of the batch `source` to the batch `into`; `source` is gone."""

    into: int
    source: int


class Seal(NamedTuple):
    """Close a batch: nobody can join any more."""

    batch: int
    reason: CloseReason


class StartBatch(NamedTuple):
    """Start a batch on the instance that it is bound to, else on `instance`, else on the best idle one.

    Seals it if need be; `reason` then says why it has this size. `slots` as in `Launch`.
    """

    batch: int
    reason: CloseReason | None = None
    instance: str | None = None
    slots: tuple[int, ...] | None = None


class Drop(NamedTuple):
    """Answer waiting or staged requests with a refusal.

    With `keeps_place` their rows go on counting where they are until their batch starts, as in servers that skip the
    dead only then.
    """

    tickets: Iterable[Ticket]
    reason: RefusalReason
    keeps_place: bool = False


class Requeue(NamedTuple):
    """Put waiting or staged requests (back) into the queue."""

    tickets: Iterable[Ticket]
    where: Where


class Preempt(NamedTuple):
    """Abort a running batch; its members go back to the front of the queue, its slot is free at once."""

    batch: int


Action = Launch | Take | Merge | Seal | StartBatch | Drop | Requeue | Preempt
