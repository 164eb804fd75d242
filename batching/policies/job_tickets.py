"""TorchServe's `useJobTicket`: a request is admitted only if a worker has come for it.

Each time that a worker comes to collect it brings one ticket; a request uses one up when it is admitted. A batch of k
requests has used k, and its worker brings back one: from then on k - 1 fewer can be here at once, down to a single one.
So with W workers at most W requests are here at once, and batches hardly fill.

Source: pytorch/serve, `Model.incNumJobTickets`, `Model.addJob`.
"""

from batching.core.news import News
from batching.core.policy import View


class JobTickets:
    """Counts places rather than tickets: a place is a ticket, or a request that has used one and has not ended.

    So a request that leaves before it runs gives its ticket back, and a model with a worker always has a place.
    """

    def __init__(self) -> None:
        self._places: int | None = None
        self._slots = 0

    def notice(self, view: View, news: News) -> None:
        """Count workers that have come or gone and batches that have ended; to be called with all news."""
        if news.fleet:
            slots = sum(worker.slots for worker in view.instances)
            if self._places is None:  # another policy's batches may run: each will bring back one ticket as well
                self._places = sum(len(batch.tickets) - 1 for batch in view.running)
            self._places += slots - self._slots
            self._slots = slots
        for batch in news.freed:
            self._places = max((self._places or 0) - (len(batch.tickets) - 1), min(self._slots, 1))

    def available(self, view: View) -> bool:
        """Whether one more request may be admitted."""
        here = len(view.queue) + view.reserved_requests
        here += sum(len(batch.tickets) for batch in view.batches)
        here += sum(len(batch.tickets) for batch in view.running)
        return here < (self._places or 0)
