"""Which arrivals wake Triton's batcher.

The rule of `DynamicBatchScheduler::Enqueue` (triton-inference-server/core, `dynamic_batch_scheduler.cc`): only while a
payload may be formed or grow, and only if shapes must be checked, the open payload cannot take more, or enough rows for
the next preferred size are queued. So most arrivals change nothing, and the next ones neither until so many wait: what
was found out once is kept until something else happens.

Without a delay each arrival behind busy instances does wake it, and is moved into the open payload. As long as that
closes nothing, it makes no difference when it happens; so these stay *behind* in the queue, and are moved together
before anything else happens. That is only a matter of speed.
"""

from collections.abc import Iterable, Sequence

from batching.core.actions import Action, Take
from batching.core.batches import CloseReason
from batching.core.policy import View
from batching.core.tickets import Ticket
from batching.policies.triton_batcher import Batcher
from batching.policies.triton_sleep import Sleep
from batching.policies.triton_staging import Staging

_ANY = 1 << 60


class Doorbell:
    """Between the arrivals and the batcher.

    Args:
        batcher: Whom it wakes.
        staging: Where the open payload is.
        sleep: Of the batcher.
        rings_always: Every arrival wakes the batcher while a payload may be formed or grow.
        may_leave_behind: See the module's docstring.

    Attributes:
        is_behind: All that waits belongs to the open payload.
        to_catch_up: So many waiting requests belong to the open payload, and something else happens now.
    """

    def __init__(
        self, batcher: Batcher, staging: Staging, sleep: Sleep, *, rings_always: bool, may_leave_behind: bool
    ) -> None:
        self.is_behind = False
        self.to_catch_up = 0
        self._batcher = batcher
        self._staging = staging
        self._sleep = sleep
        self._rings_always = rings_always
        self._may_leave_behind = may_leave_behind
        self._quiet_rows = 0  # arrivals change nothing while fewer rows wait; 0: not known

    def is_silent(self, view: View, arrived: Iterable[Ticket]) -> bool:
        """Whether arrivals change nothing, as those before them did."""
        if view.queue.rows + self._batcher.phantom_rows >= self._quiet_rows or view.now_ns >= self._sleep.ends_ns:
            return False
        return self._batcher.must_look or not have_shapes(arrived)

    def arrive(self, view: View, arrived: Sequence[Ticket]) -> None:
        """Requests have entered the queue."""
        batcher, sleep, waiting = self._batcher, self._sleep, view.queue
        self._quiet_rows = 0
        batcher.must_look = batcher.must_look or have_shapes(arrived)
        if not self.is_behind:
            sleep.end_if_over(view.now_ns, is_idle=len(waiting) == len(arrived))
        if sleep.acts_ns is not None:
            return
        rows = self._rows_that_matter(view)
        if waiting.rows + batcher.phantom_rows < rows:
            self._quiet_rows = rows
            return
        self._end_being_behind(len(waiting) - len(arrived))
        sleep.notify(view.now_ns)

    def interrupt(self, view: View, *, fleet: bool) -> None:
        """Something else has happened; if to the `fleet`, payloads may have gone back to the queue."""
        self._quiet_rows = 0
        self._end_being_behind(0 if fleet else len(view.queue))

    def catch_up(self) -> Sequence[Action]:
        """Move who was left behind into the open payload."""
        requests, self.to_catch_up = self.to_catch_up, 0
        staging = self._staging
        if staging.is_stale:  # its other members have left; with these it would have stayed
            staging.renew()
            staging.expect()
        payload = staging.open
        return (Take(requests, payload.id if payload else None, None, None, CloseReason.EAGER),)

    def _end_being_behind(self, requests: int) -> None:
        if self.is_behind:
            self.is_behind = False
            self.to_catch_up = requests

    def _rows_that_matter(self, view: View) -> int:
        """How many rows must be queued so that an arrival wakes the batcher, or cannot be left behind."""
        batcher, staging = self._batcher, self._staging
        if not staging.has_slot(view):
            return _ANY
        if self._may_leave_behind and not view.idle_slots:
            closing_rows = batcher.quiet_rows(view)
            if view.queue.rows < closing_rows:
                self.is_behind = True
                return closing_rows
        if self._rings_always or batcher.is_saturated or staging.is_stale:
            return 0
        return batcher.next_preferred


def have_shapes(tickets: Iterable[Ticket]) -> bool:
    """Whether any ticket has a shape key."""
    for ticket in tickets:  # noqa: SIM110 - any() is slower, and this runs for each arrival
        if ticket.shape_key is not None:
            return True
    return False
