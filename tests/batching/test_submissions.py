"""`Runner.submit`, in virtual time: answers come by a call, once, and nothing waits for what is done with them."""

import asyncio
import gc
import weakref
from functools import partial

import pytest

from batching.clock import MILLISECOND_NS
from batching.core.errors import DeadlineExceededError, QueueFullError, ShuttingDownError
from batching.core.limits import Limits
from batching.core.scheduler import Scheduler
from batching.policies.greedy import Greedy
from batching.runner import Runner
from tests.batching.live import SleepingInstance, in_virtual_time, serving

SERVICE_NS = 10 * MILLISECOND_NS


def make(loop, *, max_batch_rows=2, max_requests=64):
    instance = SleepingInstance(loop.clock, lambda _rows: SERVICE_NS)
    scheduler = Scheduler(Greedy(), Limits(max_batch_rows=max_batch_rows, max_requests=max_requests))
    return Runner(scheduler, [instance], loop.clock, loop.create_alarm), instance


def collect(replies, name):
    return partial(lambda outcome: replies.append((name, getattr(outcome, "result", outcome))))


def test_each_request_gets_one_reply_in_the_order_of_its_batch():
    async def scenario(loop):
        runner, _ = make(loop)
        replies = []
        async with serving(runner):
            for name in "abcde":
                runner.submit(name, 1, collect(replies, name))
            assert replies == []
        return replies

    assert in_virtual_time(scenario) == [(name, name) for name in "abcde"]


def test_the_next_batch_has_started_when_the_reply_comes():
    started = []

    async def scenario(loop):
        runner, instance = make(loop, max_batch_rows=1)
        async with serving(runner):
            for name in "ab":
                runner.submit(name, 1, lambda _: started.append(runner.statistics().running_batches))
        return instance.batches

    assert in_virtual_time(scenario) == [["a"], ["b"]]
    assert started == [1, 0]


@pytest.mark.parametrize("turns", range(4))
def test_a_cancelled_call_is_told_at_once_and_leaves_nothing(turns):
    async def scenario(loop):
        runner, _ = make(loop)
        replies = []
        async with serving(runner):
            call = runner.submit("leaver", 1, collect(replies, "leaver"))
            runner.submit("mate", 1, collect(replies, "mate"))
            for _ in range(turns):
                await asyncio.sleep(0)
            call.cancel()
            told = list(replies)
            call.cancel()
        return told, replies, runner.statistics()

    told, replies, statistics = in_virtual_time(scenario)

    assert [(name, type(outcome)) for name, outcome in told] == [("leaver", asyncio.CancelledError)]
    assert replies[1:] == [("mate", "mate")]
    assert (statistics.waiting_requests, statistics.reserved_requests, statistics.running_batches) == (0, 0, 0)


def test_cancelling_what_is_answered_does_nothing():
    async def scenario(loop):
        runner, _ = make(loop)
        replies = []
        async with serving(runner):
            call = runner.submit("a", 1, collect(replies, "a"))
            await asyncio.sleep(1)
            call.cancel()
        return replies

    assert in_virtual_time(scenario) == [("a", "a")]


def test_what_is_not_admitted_is_raised_and_not_replied():
    async def scenario(loop):
        runner, _ = make(loop, max_requests=1)
        replies = []
        async with serving(runner):
            runner.submit("a", 1, collect(replies, "a"))
            with pytest.raises(QueueFullError):
                runner.submit("b", 1, collect(replies, "b"))
        return replies

    assert in_virtual_time(scenario) == [("a", "a")]


def test_a_deadline_that_passes_is_the_reply():
    async def scenario(loop):
        runner, _ = make(loop, max_batch_rows=1)
        replies = []
        async with serving(runner):
            runner.submit("a", 1, collect(replies, "a"))
            runner.submit("b", 1, collect(replies, "b"), deadline_ns=loop.clock.now_ns() + SERVICE_NS // 2)
        return replies

    replies = in_virtual_time(scenario)

    assert [name for name, _ in replies] == ["b", "a"]
    assert isinstance(replies[0][1], DeadlineExceededError)


def test_whoever_is_held_when_the_runner_ends_is_told():
    async def scenario(loop):
        runner, _ = make(loop)
        replies = []
        running = asyncio.ensure_future(runner.run())
        await asyncio.sleep(0)
        runner.submit("a", 1, collect(replies, "a"))
        running.cancel()
        await asyncio.wait([running])
        await asyncio.sleep(0)
        return replies

    ((name, outcome),) = in_virtual_time(scenario)

    assert name == "a"
    assert isinstance(outcome, ShuttingDownError)


def test_a_reply_that_raises_is_reported_and_the_others_get_theirs():
    reported = []

    async def scenario(loop):
        runner, _ = make(loop)
        loop.set_exception_handler(lambda _loop, context: reported.append(str(context["exception"])))
        replies = []

        def fail(_outcome):
            raise ValueError("bad reply")

        async with serving(runner):
            runner.submit("a", 1, fail)
            runner.submit("b", 1, collect(replies, "b"))
        return replies

    assert in_virtual_time(scenario) == [("b", "b")]
    assert reported == ["bad reply"]


def test_a_call_that_is_over_keeps_neither_its_reply_nor_its_answer():
    class Told:
        def __call__(self, outcome):
            self.outcome = outcome

    async def scenario(loop):
        runner, _ = make(loop)
        reply = Told()
        async with serving(runner):
            call = runner.submit("a", 1, reply)
        told = weakref.ref(reply)
        gc.disable()
        del reply
        return call, told()

    try:
        call, told = in_virtual_time(scenario)
    finally:
        gc.enable()

    assert call.done()
    assert told is None
