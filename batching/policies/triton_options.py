"""What the Triton policy can be given beyond a configuration: latencies of a real server, experiments with the rule."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

_MICROSECOND_NS = 1_000


def _exactly(duration_ns: int) -> int:
    return duration_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonLatencies:
    """How long the threads of a real server take to act. All are 0 in a live gateway.

    Attributes:
        reaction_us: The batcher acts so long after the notification that woke it; more may be queued by then.
        handoff_us: A waiting instance takes a payload so long after it was staged; it may grow meanwhile. An instance
            that has just ended a batch takes the next payload at once.
        timer_slack_us: The batcher's waits end so late.
        jitter: Gets a latency in ns and returns what it is this time, in ns; seeded by whoever gives it.
    """

    reaction_us: float = 0
    handoff_us: float = 0
    timer_slack_us: float = 0
    jitter: Callable[[int], int] = _exactly

    def __post_init__(self) -> None:
        """Refuse impossible values, naming the field."""
        for name in ("reaction_us", "handoff_us", "timer_slack_us"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, found {getattr(self, name)}")

    def draw_ns(self, latency_us: float) -> int:
        """One of the latencies, this time; a latency of 0 does not vary."""
        return self.jitter(int(latency_us * _MICROSECOND_NS)) if latency_us else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonExperiments:
    """Deviations from the rule that show what its parts do. The defaults are the rule; no configuration sets them.

    Attributes:
        merge_at_dequeue: An instance that takes a payload absorbs overdue ones behind it.
        staged_payloads_per_instance: How many payloads may wait per instance when they are formed ahead; None: any.
        bind: When requests are bound to a payload: ahead of time ("prefetch"), only for an idle instance ("late"), or
            as the queue policies demand ("auto").
        every_arrival_wakes: Each arrival wakes the batcher while it may form a payload.
        dequeue_first: After a completion the instance takes its next payload before the batcher looks at the queue.
    """

    merge_at_dequeue: bool = True
    staged_payloads_per_instance: int | None = 2
    bind: Literal["auto", "prefetch", "late"] = "auto"
    every_arrival_wakes: bool = False
    dequeue_first: bool = True
