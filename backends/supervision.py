"""When a worker process counts as hung, and when a dead one is replaced: rules without a clock or a process in them."""

import enum
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from batching.clock import MILLISECOND_NS, SECOND_NS

SILENT_NS = SECOND_NS
"""A worker beats ten times a second; after this long without a beat something is wrong with it."""

MUTE_NS = 10 * SECOND_NS
"""An idle worker may be silent for this long; one in a step for longer, as the step may hold the interpreter's lock."""

STALL_NS = SECOND_NS
"""A step that takes longer is shown as a stall; it may still end well."""


class Condition(enum.Enum):
    """How a worker process is."""

    WELL = "well"
    STALLED = "stalled"  # a step takes unusually long, or no beat has been heard for a while
    HUNG = "hung"  # nothing but a new process helps


class Verdict(NamedTuple):
    """A condition, and what was found; and whether what the worker is running is the reason."""

    condition: Condition
    reason: str = ""
    blames_batch: bool = False


WELL = Verdict(Condition.WELL)


class Signs(NamedTuple):
    """What is seen of a worker at one moment.

    Attributes:
        heartbeat_ns: When it beat last.
        busy_since_ns: When its longest running step began, or 0.
        is_stopped: It is stopped by a signal (or by a debugger).
    """

    heartbeat_ns: int
    busy_since_ns: int
    is_stopped: bool


def judge(signs: Signs, step_limit_ns: int, now_ns: int, limit_name: str = "") -> Verdict:
    """How a worker is, by what is seen of it.

    Args:
        signs: What is seen now.
        step_limit_ns: How long a step may take.
        now_ns: Now.
        limit_name: What sets the limit, for the message.
    """
    silent_ns = now_ns - signs.heartbeat_ns
    busy_ns = now_ns - signs.busy_since_ns if signs.busy_since_ns else 0
    if busy_ns > step_limit_ns:
        limit = f"{step_limit_ns / SECOND_NS:g} s" + (f" ({limit_name})" if limit_name else "")
        return Verdict(Condition.HUNG, f"a step took longer than {limit}", blames_batch=True)
    if silent_ns > SILENT_NS and signs.is_stopped:
        return Verdict(Condition.HUNG, "it was stopped by a signal")
    if silent_ns > MUTE_NS and not busy_ns:  # a step may hold the interpreter's lock; it has a limit of its own
        return Verdict(Condition.HUNG, f"it gave no sign of life for {silent_ns / SECOND_NS:.0f} s")
    if silent_ns > SILENT_NS:
        return Verdict(Condition.STALLED, f"no sign of life for {silent_ns / SECOND_NS:.1f} s")
    if busy_ns > STALL_NS:
        return Verdict(Condition.STALLED, f"a step runs for {busy_ns / SECOND_NS:.1f} s")
    return WELL


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRules:
    """How often a worker may be replaced.

    Attributes:
        max_restarts: Within `window_ns`, before it counts as failed; -1 means no limit.
        window_ns: See there.
        first_delay_ns: Before the second restart in a row; the first one is immediate.
        max_delay_ns: The delay doubles up to this.
        retry_ns: A failed worker is tried again after this time, for the cause may have gone.
    """

    max_restarts: int = 5
    window_ns: int = 60 * SECOND_NS
    first_delay_ns: int = 100 * MILLISECOND_NS
    max_delay_ns: int = 10 * SECOND_NS
    retry_ns: int = 60 * SECOND_NS


class Restart(NamedTuple):
    """What to do about a dead worker: wait so long, then try again; meanwhile it counts as failed, or not."""

    delay_ns: int
    is_failed: bool


class RestartBudget:
    """Counts the deaths of one worker: exponential back-off, and a limit within a sliding window."""

    def __init__(self, rules: RestartRules) -> None:
        self.restarts = 0
        self.rules = rules
        self._deaths: deque[int] = deque()
        self._failed_at_ns: int | None = None  # of the last death that spent the budget

    def died(self, now_ns: int) -> Restart:
        """It has just died, or could not be started."""
        rules = self.rules
        while self._deaths and now_ns - self._deaths[0] > rules.window_ns:
            self._deaths.popleft()
        self._deaths.append(now_ns)
        self.restarts += 1
        recent = len(self._deaths)
        # Tried again after it had failed, it must live for a whole window, or it is as failed as before.
        retried = self._failed_at_ns is not None and now_ns - self._failed_at_ns <= rules.retry_ns + rules.window_ns
        if 0 <= rules.max_restarts < recent or (retried and rules.max_restarts >= 0):
            self._failed_at_ns = now_ns
            return Restart(rules.retry_ns, is_failed=True)
        if recent == 1:
            return Restart(0, is_failed=False)
        if rules.max_restarts < 0:
            return Restart(rules.first_delay_ns, is_failed=False)
        return Restart(min(rules.max_delay_ns, rules.first_delay_ns << min(recent - 2, 32)), is_failed=False)
