"""How late the scheduler's wake-up is on an idle loop: the timerfd alarm against the loop's own timers."""

import asyncio
import statistics
from collections.abc import Callable

import uvloop

from batching.alarm import Alarm, LoopAlarm, create_alarm
from batching.clock import MICROSECOND_NS, MonotonicClock

DELAYS_US = (100, 500, 1_000, 5_000)
ROUNDS = 100

CLOCK = MonotonicClock()


async def lateness_us(make_alarm: Callable[[Callable[[], None]], Alarm], delay_us: int) -> list[float]:
    """Arm, wait for the ring, note by how much it missed the time; negative means early."""
    rung = asyncio.Event()
    alarm = make_alarm(rung.set)
    misses = []
    for _ in range(ROUNDS):
        rung.clear()
        due_ns = CLOCK.now_ns() + delay_us * MICROSECOND_NS
        alarm.arm(due_ns)
        await rung.wait()
        misses.append((CLOCK.now_ns() - due_ns) / MICROSECOND_NS)
    alarm.close()
    return misses


async def measure(loop_name: str) -> None:
    """Print one line for each kind of alarm and delay."""
    loop = asyncio.get_running_loop()
    kinds: dict[str, Callable[[Callable[[], None]], Alarm]] = {
        "alarm": lambda ring: create_alarm(loop, CLOCK, ring),
        "call_later": lambda ring: LoopAlarm(loop, CLOCK, ring),
    }
    for kind, make_alarm in kinds.items():
        for delay_us in DELAYS_US:
            misses = sorted(await lateness_us(make_alarm, delay_us))
            print(
                f"{loop_name:8} {kind:10} asked {delay_us:5} us: late by median {statistics.median(misses):7.0f} us, "
                f"p99 {misses[-2]:7.0f} us, earliest {misses[0]:7.0f} us"
            )


def main() -> None:
    """Both loops."""
    for name, factory in (("uvloop", uvloop.new_event_loop), ("asyncio", asyncio.new_event_loop)):
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(measure(name))


if __name__ == "__main__":
    main()
