"""An ensemble that answers: order, side by side, errors, deadlines, leases, counters."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace

import numpy as np
import pytest

from backends.errors import ExecutionError, WrongRowsError
from batching.clock import MonotonicClock
from batching.core.errors import DeadlineExceededError, QueueFullError, ShuttingDownError
from gateway.answering import Answering
from gateway.engine import VersionStatistics
from gateway.ensemble import Ensemble
from gateway.hosted import Hosted
from models.errors import BrokenImageError, InvalidRequestError, ModelNotFoundError, VersionNotReadyError
from models.inference import Tensors, Timing
from models.preprocessing import Preprocessing
from models.spec import BatchingSpec, EnsembleStep, ModelSpec
from models.tensors import DataType
from tests.gateway.fake_engine import make_spec, tensor
from tests.gateway.serving import PLAIN, ByteDecoder, one_turn

FP32 = DataType.FP32
Compute = Callable[[Tensors], Awaitable[Tensors]]


class SettableClock:
    """Stands still until it is set forward."""

    def __init__(self) -> None:
        self.ns = 0

    def now_ns(self) -> int:
        return self.ns


async def double(inputs: Tensors) -> Tensors:
    return {"y": inputs["x"] * 2}  # type: ignore[operator]


class Part:
    """A model in service that notes how it was called."""

    def __init__(self, spec: ModelSpec, compute: Compute = double) -> None:
        self.spec = spec
        self.is_available = True
        self.calls: list[tuple[Tensors, int, int | None, int]] = []
        self.outputs: list[Tensors] = []
        self.cancelled = 0
        self._compute = compute

    def submit(self, *_arguments: object) -> None:
        """Only in tasks."""

    async def infer(
        self, inputs: Tensors, rows: int, timeout_ns: int | None, priority: int = 0
    ) -> tuple[Tensors, Timing]:
        self.calls.append((inputs, rows, timeout_ns, priority))
        try:
            self.outputs.append(await self._compute(inputs))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self.outputs[-1], Timing(queue_ns=5, compute_ns=100, total_ns=105, batch_rows=rows + 1)

    async def infer_image(self, image: bytes, how: Preprocessing, timeout_ns: int | None) -> tuple[Tensors, Timing]:
        raise NotImplementedError

    def statistics(self) -> VersionStatistics:
        return VersionStatistics(model=self.spec.name, version=self.spec.version)

    async def drain(self) -> None:
        """Nothing waits here."""


def part(
    name: str, compute: Compute = double, *, inputs: Sequence[str] = ("x",), dims: int = 2, **more: object
) -> Part:
    spec = make_spec(name, [tensor(it, FP32, dims) for it in inputs], [tensor("y", FP32, dims)])
    return Part(replace(spec, **more), compute)  # type: ignore[arg-type]


class Shelf:
    """Finds models by name; counts the leases."""

    def __init__(self, *parts: Answering) -> None:
        self.parts = {it.spec.name: it for it in parts}
        self.leases = 0

    @contextmanager
    def find(self, model: str, version: int | None) -> Iterator[Answering]:
        if model not in self.parts:
            raise ModelNotFoundError(model)
        self.leases += 1
        try:
            yield self.parts[model]
        finally:
            self.leases -= 1


def step(model: str, inputs: dict[str, str], output: str) -> EnsembleStep:
    return EnsembleStep(model=model, version=None, inputs=inputs, outputs={"y": output})


CHAIN = (step("first", {"x": "in"}, "between"), step("second", {"x": "between"}, "out"))
DIAMOND = (
    step("end", {"x": "left", "z": "right"}, "out"),
    step("left", {"x": "in"}, "left"),
    step("right", {"x": "in"}, "right"),
)


DEADLINES = BatchingSpec(deadlines=True)


def ensemble(
    shelf: Shelf,
    *steps: EnsembleStep,
    name: str = "both",
    clock: MonotonicClock | SettableClock | None = None,
    timeout_s: float = 30,
    **more: object,
) -> Ensemble:
    spec = make_spec(name, [tensor("in", FP32, 2)], [tensor("out", FP32, 2)])
    spec = replace(spec, steps=steps, instance_groups=(), **more)  # type: ignore[arg-type]
    return Ensemble(spec, shelf.find, ByteDecoder(), clock or MonotonicClock(), round(timeout_s * 1e9))


def rows(*values: float) -> Tensors:
    return {"in": np.array([[value, value] for value in values], np.float32)}


async def ask(asked: Ensemble, *values: float, timeout_ns: int | None = None, priority: int = 0) -> list[float]:
    outputs, _ = await asked.infer(rows(*values), len(values), timeout_ns, priority)
    return [float(row[0]) for row in outputs["out"]]


class Stop:
    """A computation that waits until it is let go."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.released = asyncio.Event()

    async def __call__(self, inputs: Tensors) -> Tensors:
        self.entered.set()
        await self.released.wait()
        return await double(inputs)


@asynccontextmanager
async def held(asked: Ensemble, stop: Stop) -> AsyncIterator["asyncio.Task[list[float]]"]:
    """A request that is in the step with `stop`."""
    task = asyncio.create_task(ask(asked, 1))
    await stop.entered.wait()
    try:
        yield task
    finally:
        stop.released.set()
        await asyncio.wait([task])


async def test_what_one_step_makes_is_handed_to_the_next_as_it_is() -> None:
    first, second = part("first"), part("second")
    shelf = Shelf(first, second)

    answer = await ask(ensemble(shelf, *CHAIN), 1, 2, 3)

    assert answer == [4, 8, 12]
    assert second.calls[0][0]["x"] is first.outputs[0]["y"]
    assert [call[1] for call in (*first.calls, *second.calls)] == [3, 3]


async def test_steps_whose_inputs_are_there_run_side_by_side() -> None:
    both = asyncio.Barrier(2)

    async def together(inputs: Tensors) -> Tensors:
        await both.wait()  # for ever, if they run one after the other
        return await double(inputs)

    async def add(inputs: Tensors) -> Tensors:
        return {"y": inputs["x"] + inputs["z"]}  # type: ignore[operator]

    shelf = Shelf(part("left", together), part("right", together), part("end", add, inputs=("x", "z")))

    assert await ask(ensemble(shelf, *DIAMOND), 3) == [12]


async def test_a_step_does_not_wait_for_those_that_it_needs_nothing_from() -> None:
    ended = asyncio.Event()

    async def after_the_other_branch(inputs: Tensors) -> Tensors:
        await ended.wait()
        return await double(inputs)

    async def tell(inputs: Tensors) -> Tensors:
        ended.set()
        return await double(inputs)

    steps = (
        step("slow", {"x": "in"}, "left"),
        step("fast", {"x": "in"}, "half"),
        step("after", {"x": "half"}, "right"),
        step("end", {"x": "left", "z": "right"}, "out"),
    )
    end = part("end", inputs=("x", "z"))
    shelf = Shelf(part("slow", after_the_other_branch), part("fast"), part("after", tell), end)

    assert await ask(ensemble(shelf, *steps), 1) == [4]


async def test_the_first_error_ends_the_others_and_names_its_step() -> None:
    stop = Stop()
    original = ExecutionError("the model broke")

    async def fail(inputs: Tensors) -> Tensors:
        await stop.entered.wait()
        raise original

    left = part("left", stop)
    shelf = Shelf(left, part("right", fail), part("end", inputs=("x", "z")))
    asked = ensemble(shelf, *DIAMOND)

    with pytest.raises(ExecutionError) as caught:
        await ask(asked, 1)

    assert str(caught.value) == "in ensemble 'both', the model broke"
    assert str(original) == "the model broke"  # others of its batch get it too
    assert left.cancelled == 1
    assert asked.statistics().failures["BACKEND"] == 1
    this = asyncio.current_task()
    assert this is not None
    assert this.cancelling() == 0


async def test_each_step_gets_what_is_left_of_the_timeout() -> None:
    clock = SettableClock()

    async def take_a_while(inputs: Tensors) -> Tensors:
        clock.ns += 4_000_000_000
        return await double(inputs)

    first, second = part("first", take_a_while), part("second")
    asked = ensemble(Shelf(first, second), *CHAIN, clock=clock)

    await ask(asked, 1, timeout_ns=10_000_000_000, priority=3)

    assert [call[2:] for call in first.calls] == [(10_000_000_000, 3)]
    assert [call[2:] for call in second.calls] == [(6_000_000_000, 3)]


async def test_no_step_begins_after_the_deadline() -> None:
    clock = SettableClock()

    async def take_too_long(inputs: Tensors) -> Tensors:
        clock.ns += 10_000_000_000
        return await double(inputs)

    second = part("second")
    asked = ensemble(Shelf(part("first", take_too_long), second), *CHAIN, clock=clock, batching=DEADLINES)

    with pytest.raises(DeadlineExceededError, match="in ensemble 'both', Request timeout expired"):
        await ask(asked, 1, timeout_ns=10_000_000_000)

    assert second.calls == []
    assert (asked.statistics().failures["REJECTED"], asked.statistics().expired_requests) == (1, 1)


@pytest.mark.parametrize("timeout_ns", [None, 1_000_000], ids=["the server's", "the caller's"])
async def test_a_timeout_ends_the_step_that_runs(timeout_ns: int | None) -> None:
    first = part("first", Stop())
    asked = ensemble(Shelf(first, part("second")), *CHAIN, timeout_s=0.001, batching=DEADLINES)

    with pytest.raises(DeadlineExceededError):
        await ask(asked, 1, timeout_ns=timeout_ns)

    assert first.cancelled == 1


async def test_a_caller_that_leaves_ends_every_step_and_every_lease() -> None:
    stop = Stop()
    left, right = part("left", stop), part("right", Stop())
    shelf = Shelf(left, right, part("end", inputs=("x", "z")))
    asked = ensemble(shelf, *DIAMOND)
    task = asyncio.create_task(ask(asked, 1))
    await stop.entered.wait()
    await one_turn()

    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()
    assert (left.cancelled, right.cancelled, shelf.leases) == (1, 1, 0)
    assert (asked.statistics().failures["CANCELED"], asked.statistics().withdrawn_requests) == (1, 1)


async def test_a_reload_in_between_does_not_change_what_a_request_runs_on() -> None:
    stop = Stop()
    old, new = part("second"), part("second", version=2)
    shelf = Shelf(part("first", stop), old)
    asked = ensemble(shelf, *CHAIN)

    async with held(asked, stop) as task:
        shelf.parts["second"] = new
        stop.released.set()
        await task
        await ask(asked, 1)

    assert (len(old.calls), len(new.calls)) == (1, 1)
    assert shelf.leases == 0


async def test_the_models_of_an_ensemble_in_an_ensemble_are_leased_from_the_start() -> None:
    stop = Stop()
    deep = part("deep")
    shelf = Shelf(part("first", stop), deep)
    inner = ensemble(shelf, step("deep", {"x": "in"}, "out"), name="inner")
    shelf.parts["inner"] = inner
    steps = (
        step("first", {"x": "in"}, "between"),
        EnsembleStep(model="inner", version=None, inputs={"in": "between"}, outputs={"out": "out"}),
    )
    asked = ensemble(shelf, *steps)

    async with held(asked, stop) as task:
        leases = shelf.leases
        del shelf.parts["deep"]
        stop.released.set()

        assert await task == [4]

    assert leases == 3
    assert (shelf.leases, inner.statistics().success.count) == (0, 1)


async def test_an_error_deep_inside_names_the_whole_way() -> None:
    async def fail(inputs: Tensors) -> Tensors:
        raise ExecutionError("broken")

    shelf = Shelf(part("deep", fail))
    shelf.parts["inner"] = ensemble(shelf, step("deep", {"x": "in"}, "out"), name="inner")
    only = EnsembleStep(model="inner", version=None, inputs={"in": "in"}, outputs={"out": "out"})

    with pytest.raises(ExecutionError) as caught:
        await ask(ensemble(shelf, only), 1)

    assert str(caught.value) == "in ensemble 'both', in ensemble 'inner', broken"


async def test_a_model_that_is_not_there_makes_the_ensemble_unready() -> None:
    shelf = Shelf(part("first"))
    asked = ensemble(shelf, *CHAIN)

    with pytest.raises(VersionNotReadyError, match=r"step 2 'second' .*: .* 'second' is not found"):
        await ask(asked, 1)

    assert not asked.is_available
    assert (shelf.leases, asked.statistics().refused_requests, asked.statistics().fail.count) == (0, 1, 0)


async def test_an_ensemble_is_available_if_its_models_are() -> None:
    second = part("second")
    asked = ensemble(Shelf(part("first"), second), *CHAIN)

    before, second.is_available = asked.is_available, False

    assert (before, asked.is_available) == (True, False)


async def test_no_more_requests_run_at_once_than_the_limit() -> None:
    stop = Stop()
    batching = BatchingSpec(max_queue_requests=1)
    asked = ensemble(Shelf(part("first", stop), part("second")), *CHAIN, batching=batching)

    async with held(asked, stop) as task:
        with pytest.raises(QueueFullError, match=r"1 requests"):
            await ask(asked, 2)
        stop.released.set()

        assert await task == [4]

    assert asked.statistics().refused_requests == 1


async def test_draining_refuses_new_requests_and_waits_for_the_running() -> None:
    stop = Stop()
    asked = ensemble(Shelf(part("first", stop), part("second")), *CHAIN)

    async with held(asked, stop) as task:
        draining = asyncio.create_task(asked.drain())
        await one_turn()
        with pytest.raises(ShuttingDownError):
            await ask(asked, 2)
        was_drained = draining.done()
        stop.released.set()
        await draining

    assert (was_drained, await task) == (False, [4])


async def test_closing_ends_what_runs() -> None:
    stop = Stop()
    asked = ensemble(Shelf(part("first", stop), part("second")), *CHAIN)
    task = asyncio.create_task(ask(asked, 1))
    await stop.entered.wait()

    await asked.aclose()

    with pytest.raises(ShuttingDownError):
        await task


async def test_a_lease_of_the_catalogue_keeps_a_model_until_the_request_is_answered() -> None:
    stop = Stop()
    hosted = {it.spec.name: Hosted(it, AsyncExitStack()) for it in (part("first", stop), part("second"))}
    shelf = Shelf()
    spec = ensemble(shelf, *CHAIN).spec
    asked = Ensemble(spec, lambda model, _version: hosted[model], ByteDecoder(), MonotonicClock(), 10**10)

    async with held(asked, stop) as task:
        retiring = asyncio.create_task(hosted["second"].retire())
        await one_turn()
        was_retired = retiring.done()
        stop.released.set()
        await retiring

    assert (was_retired, await task) == (False, [4])


async def test_the_counters_are_the_ensembles_own() -> None:
    asked = ensemble(Shelf(part("first"), part("second")), *CHAIN)

    _, timing = await asked.infer(rows(1, 2, 3), 3, None)

    entry = asked.statistics()
    assert (entry.model, entry.inference_count, entry.execution_count) == ("both", 3, 1)
    assert [it.count for it in (entry.success, entry.queue, entry.compute_input, entry.compute_infer)] == [1, 1, 1, 1]
    assert (entry.compute_output.count, entry.compute_infer.ns, entry.queue.ns) == (1, 200, 10)
    assert (timing.queue_ns, timing.compute_ns, timing.batch_rows) == (10, 200, 4)
    assert (entry.admitted_requests, entry.running_batches) == (1, 0)


async def answer_one_row(inputs: Tensors) -> Tensors:
    return {"y": inputs["x"][:1]}


async def answer_nothing(inputs: Tensors) -> Tensors:
    return {}


async def answer_wide(inputs: Tensors) -> Tensors:
    return {"y": np.zeros((len(inputs["x"]), 5), np.float32)}


@pytest.mark.parametrize(
    ("compute", "error", "text"),
    [
        (answer_one_row, WrongRowsError, "in ensemble 'both', output 'y' has 1 rows for a batch of 2"),
        (answer_nothing, ExecutionError, "in ensemble 'both', no output 'y' in the answer, found: none"),
        (answer_wide, InvalidRequestError, "in ensemble 'both', unexpected shape for input 'x'"),
    ],
    ids=["too few rows", "a missing output", "a shape that the next does not take"],
)
async def test_an_answer_that_does_not_fit_is_an_error_of_the_request(
    compute: Compute, error: type[Exception], text: str
) -> None:
    asked = ensemble(Shelf(part("first", compute), part("second")), *CHAIN)

    with pytest.raises(error) as caught:
        await ask(asked, 1, 2)

    assert str(caught.value).startswith(text)


def image_ensemble() -> Ensemble:
    """One step, which gets the decoded row."""
    only = Part(make_spec("first", [tensor("x", FP32, 3, 2, 2)], [tensor("y", FP32, 3, 2, 2)]))
    asked = ensemble(Shelf(only), step("first", {"x": "in"}, "out"))
    inputs, outputs = (tensor("in", FP32, 3, 2, 2),), (tensor("out", FP32, 3, 2, 2),)
    spec = replace(asked.spec, inputs=inputs, outputs=outputs, preprocessing=PLAIN)
    return Ensemble(spec, Shelf(only).find, ByteDecoder(), MonotonicClock(), 10**10)


async def test_an_image_becomes_a_row_of_the_only_input() -> None:
    outputs, timing = await image_ensemble().infer_image(b"7", PLAIN, None)

    assert outputs["out"].shape == (1, 3, 2, 2)
    assert (outputs["out"].flat[7], outputs["out"].sum()) == (2, 2)
    assert timing.decode_ns > 0


async def test_a_broken_image_is_an_error_of_its_own() -> None:
    asked = image_ensemble()

    with pytest.raises(BrokenImageError, match=r"^found b.no number., expected a number"):
        await asked.infer_image(b"no number", PLAIN, None)

    assert (asked.statistics().failures["OTHER"], asked.statistics().running_batches) == (1, 0)


@pytest.mark.parametrize(("dims", "batch"), [((2,), (1, 2)), ((-1, 2), (3, 2))], ids=["one row", "a batch"])
async def test_an_ensemble_without_batches_hands_rows_to_models_with_them(
    dims: tuple[int, ...], batch: tuple[int, ...]
) -> None:
    shape = batch[-len(dims) :]
    first, second = part("first"), part("second", max_batch_rows=0)
    second.spec = replace(second.spec, inputs=(tensor("x", FP32, *dims),), outputs=(tensor("y", FP32, *dims),))
    asked = ensemble(
        Shelf(first, second),
        *CHAIN,
        max_batch_rows=0,
        inputs=(tensor("in", FP32, *dims),),
        outputs=(tensor("out", FP32, *dims),),
    )

    outputs, _ = await asked.infer({"in": np.ones(shape, np.float32)}, 1, None)

    assert first.calls[0][0]["x"].shape == batch
    assert second.calls[0][0]["x"].shape == outputs["out"].shape == shape
    assert outputs["out"].max() == 4


async def test_an_input_that_was_left_out_is_left_out_of_the_step() -> None:
    first = part("first", inputs=("x", "extra"))
    optional = tuple(replace(it, optional=it.name == "extra") for it in first.spec.inputs)
    first.spec = replace(first.spec, inputs=optional)
    steps = (step("first", {"x": "in", "extra": "more"}, "out"),)

    assert await ask(ensemble(Shelf(first), *steps), 1) == [2]
    assert list(first.calls[0][0]) == ["x"]
