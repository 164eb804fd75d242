"""Work-conserving: whenever an instance is idle it gets the longest prefix of the queue that fits.

A lone request on an idle server starts at once; batches form only from what piles up while instances are busy. It
equals Triton without delay and preferred sizes, TF Serving with a zero timeout and LitServe with a zero timeout.
"""

from collections.abc import Sequence
from typing import ClassVar

from batching.core.actions import Action, Launch
from batching.core.news import News
from batching.core.policy import View
from batching.core.queue import QueueOrder
from batching.policies.prefix import fitting_prefix


class Greedy:
    """The greedy policy.

    Args:
        max_requests: Most requests in one batch; 1 turns batching off ("single").
    """

    queue_order: ClassVar[QueueOrder] = QueueOrder.ARRIVAL

    def __init__(self, max_requests: int | None = None) -> None:
        self._max_requests = max_requests

    def decide(self, view: View, news: News) -> Sequence[Action]:  # noqa: ARG002 - all is in the view
        """Launch while there is an idle slot and something to run."""
        if not view.idle_slots or not len(view.queue):
            return ()
        prefix = fitting_prefix(view.queue, view.max_batch_rows, self._max_requests)
        return (Launch(prefix.count, prefix.reason),)

    def wake_at_ns(self, view: View) -> int | None:  # noqa: ARG002
        """Never: only events give it something to do."""
        return None
