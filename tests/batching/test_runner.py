"""The live driver, in virtual time."""

import asyncio
import gc
from dataclasses import replace

import pytest

from batching.callers import Splitting
from batching.clock import MILLISECOND_NS, SECOND_NS
from batching.core.actions import Launch
from batching.core.batches import CloseReason
from batching.core.errors import DeadlineExceededError, PolicyError, QueueFullError, ShuttingDownError
from batching.core.limits import Limits
from batching.core.queue import QueueOrder
from batching.core.scheduler import Scheduler
from batching.policies.greedy import Greedy
from batching.runner import Runner
from batching.simulation import Arrival
from tests.batching.live import SleepingInstance, ask, in_virtual_time, play, serving

SERVICE_NS = 10 * MILLISECOND_NS


def make(loop, *, max_batch_rows=4, max_requests=64):
    instance = SleepingInstance(loop.clock, lambda _rows: SERVICE_NS)
    scheduler = Scheduler(Greedy(), Limits(max_batch_rows=max_batch_rows, max_requests=max_requests))
    return Runner(scheduler, [instance], loop.clock, loop.create_alarm), instance


def arrival(name: str, at_ms: float = 0, **details) -> Arrival:
    return Arrival(name=name, at_ns=round(at_ms * MILLISECOND_NS), **details)


def test_each_caller_gets_the_result_of_its_own_payload():
    load = [arrival(f"r{number}", number, rows=1 + number % 3) for number in range(20)]

    async def scenario(loop):
        runner, _ = make(loop)
        return await play(runner, load)

    answers = in_virtual_time(scenario)

    assert {name: answer.result.name for name, answer in answers.items()} == {a.name: a.name for a in load}


def test_an_answer_says_where_the_time_went():
    async def scenario(loop):
        runner, _ = make(loop)
        return await play(runner, [arrival("first"), arrival("second", 4), arrival("third", 5)])

    answer = in_virtual_time(scenario)["second"]

    assert answer.times.started_ns - answer.arrived_ns == 6 * MILLISECOND_NS
    assert answer.times.ended_ns - answer.times.started_ns == SERVICE_NS
    assert answer.batch_rows == 2


def test_requests_of_one_turn_of_the_loop_share_a_batch():
    async def scenario(loop):
        runner, instance = make(loop)
        async with serving(runner) as callers:
            for name in "abc":
                callers.create_task(ask(runner, arrival(name)))
        return instance.batches

    assert [[member.name for member in batch] for batch in in_virtual_time(scenario)] == [["a", "b", "c"]]


@pytest.mark.parametrize("turns", range(8))
def test_a_caller_may_leave_at_any_turn_without_touching_its_mates(turns):
    async def scenario(loop):
        runner, _ = make(loop)
        async with serving(runner) as callers:
            leaver = callers.create_task(ask(runner, arrival("leaver")))
            mate = callers.create_task(ask(runner, arrival("mate")))
            for _ in range(turns):
                await asyncio.sleep(0)
            leaver.cancel()
        return leaver.cancelled(), mate.result().result.name, runner.statistics()

    left, mate, statistics = in_virtual_time(scenario)

    assert left
    assert mate == "mate"
    assert (statistics.waiting_requests, statistics.reserved_requests, statistics.running_batches) == (0, 0, 0)


@pytest.mark.parametrize("turns", range(6))
def test_a_caller_that_leaves_while_the_server_is_busy_frees_its_place(turns):
    async def scenario(loop):
        runner, instance = make(loop, max_requests=1)
        async with serving(runner) as callers:
            callers.create_task(ask(runner, arrival("running")))
            await asyncio.sleep(0.001)
            leaver = callers.create_task(ask(runner, arrival("leaver")))
            for _ in range(turns):
                await asyncio.sleep(0)
            leaver.cancel()
            await asyncio.sleep(0.001)
            await ask(runner, arrival("next"))
        return [member.name for batch in instance.batches for member in batch]

    assert in_virtual_time(scenario) == ["running", "next"]


def test_a_failing_batch_fails_its_members_and_nobody_else():
    async def scenario(loop):
        runner, _ = make(loop)
        async with serving(runner) as callers:
            first = callers.create_task(ask(runner, arrival("first")))
            await asyncio.sleep(0.001)
            bad = [callers.create_task(_execute(runner, payload)) for payload in (ValueError("broken"), "mate")]
            await asyncio.sleep(0.015)
            last = callers.create_task(ask(runner, arrival("last")))
        return first.result().result.name, [task.result() for task in bad], last.result().result.name

    first, bad, last = in_virtual_time(scenario)

    assert (first, last) == ("first", "last")
    assert [str(error) for error in bad] == ["broken", "broken"]


class Noting(SleepingInstance):
    """Knows how many batches it was given."""

    submitted = 0

    def submit(self, batch, done):
        self.submitted += 1
        super().submit(batch, done)


def test_the_next_batch_starts_before_the_callers_of_the_last_one_go_on():
    async def scenario(loop):
        instance = Noting(loop.clock, lambda _rows: SERVICE_NS)
        scheduler = Scheduler(Greedy(), Limits(max_batch_rows=4))
        runner = Runner(scheduler, [instance], loop.clock, loop.create_alarm)
        begun = []

        async def call(name):
            await ask(runner, arrival(name))
            begun.append(instance.submitted)

        async with serving(runner) as callers:
            callers.create_task(call("running"))
            await asyncio.sleep(0.001)
            callers.create_task(call("waiting"))
        return begun

    assert in_virtual_time(scenario) == [2, 2]


class Refusing(SleepingInstance):
    """Answers each payload of some batches with an error of its own."""

    async def execute(self, batch):
        result = await super().execute(batch)
        errors = [ValueError(f"no {payload}") for payload in batch]
        return replace(result, results=errors) if "bad" in batch else result


def test_a_batch_without_an_answer_tells_each_its_own_error_and_counts_as_failed():
    reports = []

    async def scenario(loop):
        scheduler = Scheduler(Greedy(), Limits(max_batch_rows=4))
        instance = Refusing(loop.clock, lambda _rows: SERVICE_NS)
        runner = Runner(scheduler, [instance], loop.clock, loop.create_alarm, reports.append)
        async with serving(runner) as callers:
            asked = [callers.create_task(_execute(runner, payload)) for payload in ("bad", "worse")]
        return [task.result() for task in asked]

    errors = in_virtual_time(scenario)

    assert [str(error) for error in errors] == ["no bad", "no worse"]
    assert [report.times for report in reports] == [None]


async def _execute(runner, payload):
    with runner.reserve(1) as reservation:
        try:
            return await reservation.execute(payload)
        except ValueError as error:
            return error


def test_a_deadline_answers_a_queued_caller_on_time():
    async def scenario(loop):
        runner, _ = make(loop)
        ended = {}

        async def call(hasty):
            with pytest.raises(DeadlineExceededError):
                await ask(runner, hasty)
            ended[hasty.name] = loop.time()

        async with serving(runner) as callers:
            callers.create_task(ask(runner, arrival("running")))
            await asyncio.sleep(0.001)
            for patience_ms in (3, 7):
                hasty = arrival(f"{patience_ms}", patience_ns=patience_ms * MILLISECOND_NS)
                callers.create_task(call(hasty))
        return ended

    assert in_virtual_time(scenario) == {"3": pytest.approx(0.004), "7": pytest.approx(0.008)}


def test_a_deadline_answers_a_running_caller_on_time():
    async def scenario(loop):
        runner, instance = make(loop)
        async with serving(runner):
            with pytest.raises(DeadlineExceededError):
                await ask(runner, arrival("hasty", patience_ns=2 * MILLISECOND_NS))
            return loop.time(), len(instance.batches)

    assert in_virtual_time(scenario) == (pytest.approx(0.002), 1)


def test_a_deadline_that_passes_while_decoding_is_reported_at_execution():
    async def scenario(loop):
        runner, instance = make(loop)
        async with serving(runner):
            with runner.reserve(1, deadline_ns=MILLISECOND_NS) as reservation:
                await asyncio.sleep(0.002)
                with pytest.raises(DeadlineExceededError):
                    await reservation.execute("late")
        return instance.batches

    assert in_virtual_time(scenario) == []


def test_a_reservation_given_up_while_decoding_frees_its_place():
    async def scenario(loop):
        runner, _ = make(loop, max_requests=1)
        async with serving(runner):
            with runner.reserve(1), pytest.raises(QueueFullError):
                runner.reserve(1)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return (await ask(runner, arrival("next"))).result.name

    assert in_virtual_time(scenario) == "next"


def test_a_reservation_that_expired_and_is_given_up_leaves_no_trace():
    async def scenario(loop):
        runner, _ = make(loop)
        async with serving(runner):
            with runner.reserve(1, deadline_ns=MILLISECOND_NS):
                await asyncio.sleep(0.002)
        return runner.statistics()

    assert in_virtual_time(scenario).expired_requests == 1


def test_a_reservation_is_good_for_one_execution():
    async def scenario(loop):
        runner, _ = make(loop)
        async with serving(runner):
            with runner.reserve(1) as reservation:
                await reservation.execute("once")
                with pytest.raises(RuntimeError, match="one execution"):
                    await reservation.execute("twice")

    in_virtual_time(scenario)


def test_draining_answers_everything_admitted_and_refuses_the_rest():
    async def scenario(loop):
        runner, _ = make(loop, max_batch_rows=1)
        async with serving(runner) as callers:
            tasks = [callers.create_task(ask(runner, arrival(name))) for name in "abc"]
            await asyncio.sleep(0)
            await runner.drain()
            with pytest.raises(ShuttingDownError):
                runner.reserve(1)
            return [task.done() for task in tasks], loop.clock.now_ns()

    assert in_virtual_time(scenario) == ([True] * 3, 3 * SERVICE_NS)


def test_stopping_answers_what_is_still_held():
    async def scenario(loop):
        runner, _ = make(loop, max_batch_rows=1)
        running = asyncio.ensure_future(runner.run())
        await asyncio.sleep(0)
        callers = [asyncio.ensure_future(ask(runner, arrival(name))) for name in ("running", "waiting")]
        await asyncio.sleep(0.001)
        running.cancel()
        return await asyncio.gather(*callers, return_exceptions=True)

    assert [type(error) for error in in_virtual_time(scenario)] == [ShuttingDownError] * 2


def test_a_stopped_runner_refuses():
    async def scenario(loop):
        runner, _ = make(loop)
        async with serving(runner):
            pass
        with pytest.raises(ShuttingDownError):
            runner.reserve(1)

    in_virtual_time(scenario)


def test_every_batch_is_reported():
    async def scenario(loop):
        reports = []
        instance = SleepingInstance(loop.clock, lambda _rows: SERVICE_NS)
        runner = Runner(
            Scheduler(Greedy(), Limits(max_batch_rows=4)), [instance], loop.clock, loop.create_alarm, reports.append
        )
        async with serving(runner) as callers:
            callers.create_task(ask(runner, arrival("a", rows=3)))
            await asyncio.sleep(0.001)
            for payload in ("b", ValueError("broken")):
                callers.create_task(_execute(runner, payload))
        return reports

    good, bad = in_virtual_time(scenario)

    assert (good.rows, good.requests, good.times.ended_ns - good.times.started_ns) == (3, 1, SERVICE_NS)
    assert (bad.rows, bad.requests, bad.times) == (2, 2, None)


def test_virtual_time_that_cannot_pass_is_an_error():
    async def scenario(loop):
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="stands still"):
        in_virtual_time(scenario)


def test_virtual_sleep_takes_exactly_its_time():
    async def scenario(loop):
        await asyncio.sleep(3600)
        return loop.clock.now_ns()

    assert in_virtual_time(scenario) == 3600 * SECOND_NS


class Lawless:
    """A policy that asks for more than there is as soon as something waits."""

    queue_order = QueueOrder.ARRIVAL

    def decide(self, view, news):
        return (Launch(99, CloseReason.EAGER),) if len(view.queue) else ()

    def wake_at_ns(self, view):
        return None


def test_a_policy_that_breaks_a_law_ends_the_runner_and_answers_everyone():
    async def scenario(loop):
        instance = SleepingInstance(loop.clock, lambda _rows: SERVICE_NS)
        runner = Runner(Scheduler(Lawless(), Limits(max_batch_rows=4)), [instance], loop.clock, loop.create_alarm)
        running = asyncio.ensure_future(runner.run())
        await asyncio.sleep(0)
        caller = asyncio.ensure_future(ask(runner, arrival("caller")))
        return await asyncio.gather(running, caller, return_exceptions=True)

    error, answer = in_virtual_time(scenario)

    assert isinstance(error, PolicyError)
    assert isinstance(answer, ShuttingDownError)


def test_a_caller_cancelled_before_its_first_step_reserves_nothing():
    async def scenario(loop):
        runner, _ = make(loop)
        async with serving(runner) as callers:
            callers.create_task(runner.execute("never", 1)).cancel()
        return runner.statistics()

    assert in_virtual_time(scenario).reserved_requests == 0


def test_a_caller_that_leaves_while_its_deadline_passes_behind_a_slow_turn_harms_nobody():
    async def scenario(loop):
        runner, _ = make(loop, max_batch_rows=1)
        async with serving(runner) as callers:
            hasty = callers.create_task(ask(runner, arrival("hasty", patience_ns=SERVICE_NS + 1)))
            waiting = callers.create_task(ask(runner, arrival("waiting")))
            await asyncio.sleep(SERVICE_NS / SECOND_NS)  # the first batch ends in this very turn
            loop.clock.advance(2 * SERVICE_NS)  # the loop was busy with something else
            hasty.cancel()
        return waiting.result().result.name, runner.statistics().running_batches

    assert in_virtual_time(scenario) == ("waiting", 0)


def test_a_deadline_that_passes_during_the_preparation_ends_it_on_time():
    async def scenario(loop):
        runner, _ = make(loop)
        async with serving(runner):
            with runner.reserve(1, deadline_ns=MILLISECOND_NS) as reservation, pytest.raises(DeadlineExceededError):
                await reservation.prepare(asyncio.sleep(3600))
            return loop.time()

    assert in_virtual_time(scenario) == pytest.approx(0.001)


def test_a_stopping_runner_ends_the_preparation():
    async def scenario(loop):
        runner, _ = make(loop)
        running = asyncio.ensure_future(runner.run())
        await asyncio.sleep(0)
        loop.call_later(0.001, running.cancel)
        with runner.reserve(1) as reservation, pytest.raises(ShuttingDownError):
            await reservation.prepare(asyncio.sleep(3600))

    in_virtual_time(scenario)


@pytest.mark.parametrize("failure", [None, ValueError("broken")])
def test_the_preparations_own_end_is_passed_on(failure):
    async def scenario(loop):
        async def decode():
            if failure:
                raise failure
            return "row"

        runner, _ = make(loop)
        async with serving(runner):
            with runner.reserve(1) as reservation:
                try:
                    return await reservation.prepare(decode())
                except ValueError as error:
                    return error

    assert in_virtual_time(scenario) is (failure or "row")


class Halves:
    """A policy that always fills a batch up with the first rows of the next request."""

    queue_order = QueueOrder.ARRIVAL

    def decide(self, view, news):
        if not view.idle_slots or not len(view.queue):
            return ()
        count = rows = 0
        for ticket in view.queue:
            count += 1
            if rows + ticket.rows > view.max_batch_rows:
                return (Launch(count, CloseReason.SPLIT, rows_of_last=view.max_batch_rows - rows),)
            rows += ticket.rows
            if rows == view.max_batch_rows:
                break
        return (Launch(count, CloseReason.FULL),)

    def wake_at_ns(self, view):
        return None


def split(loop, fails=lambda batch: False, **how):
    """A runner over lists of letters whose batches hold four of them; each result is the letter in upper case."""

    class Shouting(SleepingInstance):
        async def execute(self, batch):
            result = await super().execute(batch)
            if fails(batch):
                raise ValueError("".join(letter for rows in batch for letter in rows))
            return replace(result, results=[[letter.upper() for letter in rows] for rows in batch])

    cutting = Splitting(
        cut=lambda letters, first, rows: letters[first : first + rows],
        join=lambda parts: [letter for part in parts for letter in part],
    )
    instance = Shouting(loop.clock, lambda _rows: SERVICE_NS)
    scheduler = Scheduler(Halves(), Limits(max_batch_rows=4), **how)
    return Runner(scheduler, [instance], loop.clock, loop.create_alarm, splitting=cutting), instance


def test_the_parts_of_a_cut_request_come_back_as_one_answer():
    async def scenario(loop):
        runner, instance = split(loop)
        async with serving(runner) as callers:
            tasks = [callers.create_task(runner.execute(list(word), len(word))) for word in ("abc", "defg", "h")]
        return [task.result() for task in tasks], instance.batches

    answers, batches = in_virtual_time(scenario)

    assert batches == [[["a", "b", "c"], ["d"]], [["e", "f", "g"], ["h"]]]
    assert ["".join(answer.result) for answer in answers] == ["ABC", "DEFG", "H"]
    cut = answers[1]
    assert cut.times.ended_ns - cut.times.started_ns == 2 * SERVICE_NS


def test_a_part_that_fails_fails_its_request_and_spares_the_rest_of_it():
    async def scenario(loop):
        runner, instance = split(loop, fails=lambda batch: ["d"] in batch)
        async with serving(runner) as callers:
            tasks = [callers.create_task(attempt(runner, word)) for word in ("abc", "defg", "h")]
        return [task.result() for task in tasks], instance.batches, runner.statistics()

    async def attempt(runner, word):
        try:
            return "".join((await runner.execute(list(word), len(word))).result)
        except ValueError as error:
            return error

    (first, cut, last), batches, statistics = in_virtual_time(scenario)

    assert (str(first), str(cut), last) == ("abcd", "abcd", "H")
    assert batches[1:] == [[["h"]]]
    assert (statistics.waiting_requests, statistics.running_batches) == (0, 0)


def test_answers_keep_their_order_when_asked_to():
    async def scenario(loop):
        def service_ns(rows):
            return rows * SERVICE_NS

        instances = [SleepingInstance(loop.clock, service_ns, f"i{number}") for number in range(2)]
        scheduler = Scheduler(Greedy(max_requests=1), Limits(max_batch_rows=4), preserve_ordering=True)
        runner = Runner(scheduler, instances, loop.clock, loop.create_alarm)
        left = []

        async def call(name, rows):
            await ask(runner, arrival(name, rows=rows))
            left.append((name, loop.clock.now_ns()))

        async with serving(runner) as callers:
            callers.create_task(call("slow", 4))
            callers.create_task(call("fast", 1))
        return left

    assert in_virtual_time(scenario) == [("slow", 4 * SERVICE_NS), ("fast", 4 * SERVICE_NS)]


def test_an_error_waits_for_its_turn_too():
    async def scenario(loop):
        instances = [SleepingInstance(loop.clock, lambda rows: rows * SERVICE_NS, f"i{number}") for number in range(2)]
        scheduler = Scheduler(Greedy(max_requests=1), Limits(max_batch_rows=4), preserve_ordering=True)
        runner = Runner(scheduler, instances, loop.clock, loop.create_alarm)
        async with serving(runner) as callers:
            callers.create_task(ask(runner, arrival("slow", rows=4)))
            await asyncio.sleep(0.001)
            broken = callers.create_task(_execute(runner, ValueError("broken")))
        return str(broken.result()), loop.clock.now_ns()

    assert in_virtual_time(scenario) == ("broken", 4 * SERVICE_NS)


@pytest.mark.parametrize("word", ["abcdefg", "ab"])
def test_a_failing_part_with_preserved_order_leaves_nobody_waiting(word):
    async def scenario(loop):
        runner, _ = split(loop, fails=lambda batch: True, preserve_ordering=True)
        async with serving(runner) as callers:
            tasks = [callers.create_task(attempt(runner, letters)) for letters in ("abc", word[:4], "h")]
        return [str(task.result()) for task in tasks], runner.statistics().waiting_requests

    async def attempt(runner, letters):
        try:
            return (await runner.execute(list(letters), len(letters))).result
        except ValueError as error:
            return error

    errors, waiting = in_virtual_time(scenario)

    assert all(errors)
    assert waiting == 0


def test_draining_ends_when_the_runner_does():
    async def scenario(loop):
        runner, _ = make(loop)
        running = asyncio.ensure_future(runner.run())
        await asyncio.sleep(0)
        caller = asyncio.ensure_future(ask(runner, arrival("caller")))
        await asyncio.sleep(0)
        draining = asyncio.ensure_future(runner.drain())
        await asyncio.sleep(0)
        running.cancel()
        return await asyncio.gather(draining, caller, return_exceptions=True)

    drained, answer = in_virtual_time(scenario)

    assert drained is None
    assert isinstance(answer, ShuttingDownError)


def test_a_preparation_that_fails_while_it_is_given_up_is_not_reported_as_lost():
    lost = []

    async def scenario(loop):
        loop.set_exception_handler(lambda _loop, context: lost.append(context))
        runner, _ = make(loop)
        async with serving(runner):
            with pytest.raises(DeadlineExceededError), runner.reserve(1, deadline_ns=5) as reservation:
                await reservation.prepare(stubborn())

    async def stubborn():
        try:
            await asyncio.sleep(1)
        finally:
            raise ValueError("while leaving")

    in_virtual_time(scenario)
    gc.collect()

    assert lost == []
