"""Wake-ups that are exact to fractions of a millisecond.

asyncio's own timers are not: on the standard loop a delay of 100 us takes 1.1 ms, on uvloop it takes 1 us, and 5 ms may
fire after 4.2 ms. On Linux one timerfd with an absolute monotonic time wakes the loop through its selector; elsewhere
`loop.call_at` serves, and whoever is woken early simply arms the alarm again.
"""

import asyncio
import ctypes
import os
import platform
from collections.abc import Callable
from typing import Protocol

from batching.clock import MILLISECOND_NS, SECOND_NS, Clock


class Alarm(Protocol):
    """Calls back once at a time; arming it again replaces the time."""

    def arm(self, at_ns: int) -> None:
        """Call back at this time of the monotonic clock, or at once if it has passed. May be early, never lost."""
        ...

    def close(self) -> None:
        """Release what it holds; it never calls back again."""
        ...


class LoopAlarm:
    """An alarm made of `loop.call_at`, with the loop's own resolution."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._clock = clock
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None

    def arm(self, at_ns: int) -> None:
        """See `Alarm`."""
        self._cancel()
        delay_s = max(0, min(at_ns, _FARTHEST_NS) - self._clock.now_ns()) / SECOND_NS
        self._handle = self._loop.call_later(delay_s, self._ring)

    def close(self) -> None:
        """See `Alarm`."""
        self._cancel()

    def _cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


_FAR_NS = 100 * MILLISECOND_NS
_FARTHEST_NS = 1 << 62  # a century from the start of the clock; what is later rings early and is armed again


class _TimerSpec(ctypes.Structure):
    """`struct itimerspec` of timerfd_settime(2): interval, then first expiry."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


class TimerfdAlarm:
    """An alarm made of a Linux timerfd. Its times are those of CLOCK_MONOTONIC, as `time.monotonic_ns` gives them.

    Setting one takes up to 20 us (a virtual machine has to ask its host), and most far times, such as the ends of
    callers' patience, are replaced long before they come. So the loop's own timer keeps those until they are near.
    """

    _CLOCK_MONOTONIC = 1
    _ABSOLUTE = 1  # TFD_TIMER_ABSTIME

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        # PyDLL: calls that return at once need not let other threads have the interpreter meanwhile.
        libc = ctypes.PyDLL(None, use_errno=True)
        self._settime = libc.timerfd_settime
        self._settime.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.POINTER(_TimerSpec), ctypes.c_void_p)
        self._spec = _TimerSpec()
        self._fd: int = libc.timerfd_create(self._CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        self._far_ns: int | None = None
        self._far_timer: asyncio.TimerHandle | None = None
        self._loop.add_reader(self._fd, self._on_readable)

    def arm(self, at_ns: int) -> None:
        """See `Alarm`."""
        if at_ns - self._loop.time() * SECOND_NS > _FAR_NS:
            self._arm_far(min(at_ns, _FARTHEST_NS))
            return
        self._far_ns = None
        spec = self._spec
        spec.value_s, spec.value_ns = divmod(min(max(1, at_ns), _FARTHEST_NS), SECOND_NS)  # 0 would disarm
        if self._settime(self._fd, self._ABSOLUTE, spec, None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")

    def close(self) -> None:
        """See `Alarm`."""
        if self._far_timer is not None:
            self._far_timer.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _arm_far(self, at_ns: int) -> None:
        self._far_ns = at_ns
        near_s = (at_ns - _FAR_NS // 2) / SECOND_NS
        if self._far_timer is None or near_s < self._far_timer.when():
            if self._far_timer is not None:
                self._far_timer.cancel()
            self._far_timer = self._loop.call_at(near_s, self._on_near)

    def _on_near(self) -> None:
        self._far_timer = None
        if self._far_ns is not None:
            self.arm(self._far_ns)

    def _on_readable(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # armed again since it became readable
        self._ring()


def create_alarm(loop: asyncio.AbstractEventLoop, clock: Clock, ring: Callable[[], None]) -> Alarm:
    """The best alarm of this platform."""
    if platform.system() == "Linux":
        return TimerfdAlarm(loop, ring)
    return LoopAlarm(loop, clock, ring)
