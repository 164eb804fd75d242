"""The wake-up on real loops. How late it may be is a benchmark's business; here: never early, never lost."""

import asyncio
import platform

import pytest
import uvloop

from batching.alarm import LoopAlarm, TimerfdAlarm, create_alarm
from batching.clock import MILLISECOND_NS, MonotonicClock

LINUX = platform.system() == "Linux"
timerfd = pytest.mark.skipif(not LINUX, reason="timerfd is Linux's")
clock = MonotonicClock()


def make_timerfd(loop, ring):
    return TimerfdAlarm(loop, ring)


def make_loop_alarm(loop, ring):
    return LoopAlarm(loop, clock, ring)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop_factory(request):
    return request.param


@pytest.fixture(params=[pytest.param(make_timerfd, marks=timerfd), make_loop_alarm], ids=["timerfd", "call_at"])
def make_alarm(request):
    return request.param


def run(loop_factory, scenario):
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(scenario())


@timerfd
@pytest.mark.parametrize("delay_us", [0, 1, 100, 900, 5_000, 130_000])
def test_a_timerfd_wake_is_never_early(loop_factory, delay_us):
    async def scenario():
        rung = asyncio.Event()
        alarm = TimerfdAlarm(asyncio.get_running_loop(), rung.set)
        due_ns = clock.now_ns() + delay_us * 1000
        alarm.arm(due_ns)
        await rung.wait()
        early_ns = due_ns - clock.now_ns()
        alarm.close()
        return early_ns

    assert run(loop_factory, scenario) <= 0


def test_arming_again_replaces_the_time(loop_factory, make_alarm):
    async def scenario():
        rings = []
        rung = asyncio.Event()
        alarm = make_alarm(asyncio.get_running_loop(), lambda: (rings.append(clock.now_ns()), rung.set()))
        alarm.arm(clock.now_ns() + 3_600_000 * MILLISECOND_NS)
        alarm.arm(clock.now_ns() + MILLISECOND_NS)
        await rung.wait()
        alarm.close()
        return rings

    assert len(run(loop_factory, scenario)) == 1


def test_a_near_time_is_not_disturbed_by_a_far_one_of_before(loop_factory, make_alarm):
    async def scenario():
        rings = []
        rung = asyncio.Event()
        alarm = make_alarm(asyncio.get_running_loop(), lambda: (rings.append(clock.now_ns()), rung.set()))
        far_ns = clock.now_ns() + 110 * MILLISECOND_NS
        for at_ns in (1 << 63, far_ns, far_ns - 100 * MILLISECOND_NS):
            alarm.arm(at_ns)
        await rung.wait()
        await asyncio.sleep(0.06)  # by then the far time would have been looked at
        alarm.close()
        return [ring_ns < far_ns for ring_ns in rings]

    assert run(loop_factory, scenario) == [True]


def test_a_time_in_the_past_rings_at_once(loop_factory, make_alarm):
    async def scenario():
        rung = asyncio.Event()
        alarm = make_alarm(asyncio.get_running_loop(), rung.set)
        alarm.arm(clock.now_ns() - MILLISECOND_NS)
        await rung.wait()
        alarm.close()
        return True

    assert run(loop_factory, scenario)


def test_a_closed_alarm_is_silent_while_a_later_one_rings(loop_factory, make_alarm):
    async def scenario():
        loop = asyncio.get_running_loop()
        rings, rung = [], asyncio.Event()
        silent = make_alarm(loop, lambda: rings.append("silent"))
        loud = make_alarm(loop, rung.set)
        silent.arm(clock.now_ns() + MILLISECOND_NS)
        silent.close()
        loud.arm(clock.now_ns() + 5 * MILLISECOND_NS)
        await rung.wait()
        loud.close()
        return rings

    assert run(loop_factory, scenario) == []


def test_closing_twice_is_harmless(loop_factory, make_alarm):
    async def scenario():
        alarm = make_alarm(asyncio.get_running_loop(), lambda: None)
        alarm.close()
        alarm.close()
        return True

    assert run(loop_factory, scenario)


def test_linux_gets_the_exact_alarm(loop_factory):
    async def scenario():
        alarm = create_alarm(asyncio.get_running_loop(), clock, lambda: None)
        alarm.close()
        return isinstance(alarm, TimerfdAlarm)

    assert run(loop_factory, scenario) == LINUX
