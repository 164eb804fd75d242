"""The sleep of Triton's batcher thread, and what ends it.

The original (triton-inference-server/core, `dynamic_batch_scheduler.cc`: BatcherThread) waits on a condition variable:
until the oldest request's delay is over, or for 500 ms; and, while it may form no payload, until it may, with a look at
the queue every 500 ms.
"""

from batching.policies.triton_options import TritonLatencies

_POLL_NS = 500_000_000


class Sleep:
    """Awake or asleep, since when, until when.

    Attributes:
        acts_ns: When the batcher acts, having been woken; None while it sleeps.
        ends_ns: When the sleep ends by itself.
        waits_for_slot: Asleep until it may form a payload: notifications alone do not end that.
    """

    def __init__(self, latencies: TritonLatencies) -> None:
        self.acts_ns: int | None = None
        self.ends_ns = _POLL_NS
        self.waits_for_slot = False
        self._latencies = latencies
        self._is_until_poll = True
        self._was_polled = False

    def notify(self, now_ns: int) -> None:
        """Wake the batcher, if it sleeps; it acts after its reaction time."""
        if self.acts_ns is None:
            self.acts_ns = now_ns + self._latencies.draw_ns(self._latencies.reaction_us)

    def end_if_over(self, now_ns: int, *, is_idle: bool) -> None:
        """End a sleep whose time is over; polls of an empty queue (`is_idle`) change nothing and keep their rhythm."""
        if self.acts_ns is not None or now_ns < self.ends_ns:
            return
        if self._is_until_poll:
            self.ends_ns += ((now_ns - self.ends_ns) // _POLL_NS + 1) * _POLL_NS
            if is_idle:
                return
            self._was_polled = True
        self.acts_ns = now_ns

    def until_poll(self, now_ns: int) -> None:
        """Sleep until something happens."""
        self.acts_ns = None
        self.ends_ns = now_ns + _POLL_NS
        self._is_until_poll = True
        self.waits_for_slot = self._was_polled = False

    def until(self, now_ns: int, due_ns: int) -> None:
        """Sleep until something happens, or until `due_ns`."""
        self.until_poll(now_ns)
        self._is_until_poll = False
        self.ends_ns = due_ns + self._latencies.draw_ns(self._latencies.timer_slack_us)

    def until_slot(self, now_ns: int) -> bool:
        """Sleep until a payload may be formed. Returns whether this was already so and a poll was due meanwhile."""
        was_waiting, ends_ns = self.waits_for_slot, self.ends_ns
        was_polled = was_waiting and (self._was_polled or ends_ns <= now_ns)
        self.until_poll(now_ns)
        self.waits_for_slot = True
        if was_waiting and not was_polled:
            self.ends_ns = ends_ns
        return was_polled
