"""An asyncio loop in virtual time: whenever nothing can run, the clock jumps to the next timer.

The live driver runs on it unchanged and in no time; `asyncio.sleep` and `loop.call_at` are exact.
"""

import asyncio
import selectors
from collections.abc import Callable, Mapping
from typing import Any

from typing_extensions import override

from batching.alarm import Alarm, LoopAlarm
from batching.clock import SECOND_NS


class VirtualClock:
    """A clock that only its loop moves."""

    def __init__(self) -> None:
        self._now_ns = 0

    def now_ns(self) -> int:
        """The virtual time."""
        return self._now_ns

    def advance(self, ns: int) -> None:
        """Let time pass."""
        self._now_ns += ns


class _JumpingSelector(selectors.BaseSelector):
    """A selector that never waits: it looks once, and if nothing is ready lets the asked time pass at once."""

    def __init__(self, clock: VirtualClock) -> None:
        self._real = selectors.DefaultSelector()
        self._clock = clock

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise RuntimeError("virtual time stands still: every task waits and no timer is set")
        self._clock.advance(max(1, round(timeout * SECOND_NS)))
        return []

    @override
    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    @override
    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    @override
    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    @override
    def close(self) -> None:
        self._real.close()


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """The loop; `clock` is its time in nanoseconds."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        super().__init__(_JumpingSelector(self.clock))

    @override
    def time(self) -> float:
        return self.clock.now_ns() / SECOND_NS

    def create_alarm(self, ring: Callable[[], None]) -> Alarm:
        """An alarm in this loop's time."""
        return LoopAlarm(self, self.clock, ring)
