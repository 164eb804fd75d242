"""The only module that reads a clock."""

import time
from typing import Protocol

MICROSECOND_NS = 1_000
MILLISECOND_NS = 1_000_000
SECOND_NS = 1_000_000_000


class Clock(Protocol):
    """A monotonic clock in integer nanoseconds; its origin means nothing."""

    def now_ns(self) -> int:
        """The time now."""
        ...


class MonotonicClock:
    """The machine's monotonic clock."""

    def now_ns(self) -> int:
        """The time now."""
        return time.monotonic_ns()


class WallClock:
    """The calendar: nanoseconds since 1970 in UTC. Only for time stamps that people read, never for waiting."""

    def now_ns(self) -> int:
        """The time now."""
        return time.time_ns()


def seconds_to_ns(seconds: float) -> int:
    """Convert once, at the edge."""
    return round(seconds * SECOND_NS)
