"""One model version: batches, chunks, deadlines, counters."""

import asyncio
import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest

from backends.errors import ExecutionError
from batching.core.errors import DeadlineExceededError, QueueFullError, TooManyRowsError
from gateway.service import InferenceService
from models.errors import InvalidRequestError
from models.spec import Oversize
from tests.gateway.serving import POISON, Gate, echo, images, mirror, one_turn, rows, serving, values


def counters(service: InferenceService):
    (entry,) = service.statistics()
    return entry


async def test_a_large_request_is_cut_into_chunks_and_keeps_its_order() -> None:
    async with serving(echo(max_batch_rows=4)) as service:
        response = await service.infer(rows(*range(10)))

        assert values(response) == list(range(10))
        assert (counters(service).execution_count, counters(service).success.count) == (3, 1)
        assert response.timing.batch_rows == 4


async def test_an_error_in_one_chunk_is_the_requests_error_and_leaves_nothing_behind() -> None:
    async with serving(echo(max_batch_rows=4)) as service:
        with pytest.raises(ExecutionError, match=r"contains -1\.0"):
            await service.infer(rows(0, 1, 2, 3, 4, POISON, 6, 7, 8, 9))

        assert counters(service).failures["BACKEND"] == 1
        assert (counters(service).waiting_requests, counters(service).reserved_requests) == (0, 0)
        assert values(await service.infer(rows(5))) == [5]


async def test_all_chunks_are_admitted_or_none() -> None:
    async with serving(echo(max_batch_rows=4, max_queue_requests=2)) as service:
        with pytest.raises(QueueFullError):
            await service.infer(rows(*range(12)))
        await one_turn()

        assert counters(service).reserved_requests == 0
        assert counters(service).fail.count == 0


@pytest.mark.parametrize(
    ("batching", "text"),
    [
        ({"max_queue_rows": 16}, "request has 20 rows, the largest batch is 16"),
        ({"oversize": Oversize.REFUSE}, "batch-size must be <= 4 for 'echo'"),
    ],
    ids=["more than the queue holds", "no splitting"],
)
async def test_what_cannot_be_split_is_refused_with_the_limit(batching: dict, text: str) -> None:
    async with serving(echo(max_batch_rows=4, **batching)) as service:
        with pytest.raises((TooManyRowsError, InvalidRequestError)) as caught:
            await service.infer(rows(*range(20)))

    assert text in str(caught.value)


async def test_the_tensors_of_a_request_that_fails_are_given_back_without_the_garbage_collector() -> None:
    async with serving(echo()) as service:
        request = rows(POISON)
        tensor = weakref.ref(next(iter(request.inputs.values())))
        gc.collect()
        gc.disable()
        try:
            with pytest.raises(ExecutionError):
                await service.infer(request)
            del request
            async with asyncio.timeout(5):
                while tensor() is not None:  # the instance's thread holds it until it waits for the next batch
                    await one_turn()
        finally:
            gc.enable()


async def test_a_deadline_ends_the_waiting_and_is_counted_as_rejected() -> None:
    gate = Gate()
    async with serving(echo(deadlines=True), gate=gate) as service:
        running = asyncio.create_task(service.infer(rows(1)))
        await asyncio.to_thread(gate.entered.acquire)

        with pytest.raises(DeadlineExceededError):
            await service.infer(rows(2, timeout_ns=50_000_000))
        gate.open()

        assert values(await running) == [1]
        assert counters(service).failures["REJECTED"] == 1


async def test_the_default_timeout_is_for_requests_without_their_own() -> None:
    gate = Gate()
    async with serving(echo(deadlines=True), gate=gate, timeout_s=0.001) as service:
        running = asyncio.create_task(service.infer(rows(1, timeout_ns=10**10)))
        await asyncio.to_thread(gate.entered.acquire)

        with pytest.raises(DeadlineExceededError):
            await service.infer(rows(2))
        gate.open()

        assert values(await running) == [1]


async def test_a_caller_that_leaves_is_counted_and_its_batch_mates_are_answered() -> None:
    gate = Gate()
    async with serving(echo(), gate=gate) as service:
        running = asyncio.create_task(service.infer(rows(1)))
        await asyncio.to_thread(gate.entered.acquire)
        leaving, staying = (asyncio.create_task(service.infer(rows(value))) for value in (2, 3))
        await one_turn()
        leaving.cancel()
        await asyncio.wait([leaving])
        gate.open()

        assert [values(await running), values(await staying)] == [[1], [3]]
        assert counters(service).failures["CANCELED"] == 1
        assert counters(service).inference_count == 2


async def test_waiting_requests_share_a_batch_and_statistics_count_each() -> None:
    gate = Gate()
    async with serving(echo(max_batch_rows=4), gate=gate) as service:
        first = asyncio.create_task(service.infer(rows(0)))
        await asyncio.to_thread(gate.entered.acquire)
        others = [asyncio.create_task(service.infer(rows(value))) for value in (1, 2, 3)]
        await one_turn()
        gate.open()
        await asyncio.wait([first, *others])

        entry = counters(service)
        assert [values(task.result()) for task in others] == [[1], [2], [3]]
        assert (entry.inference_count, entry.execution_count, entry.success.count) == (4, 2, 4)
        assert [(batch.rows, batch.compute_infer.count) for batch in entry.batches] == [(1, 1), (3, 1)]
        assert entry.compute_infer.count == 4
        assert sum(entry.close_reasons.values()) == 2


async def test_rows_of_different_shapes_never_share_a_batch() -> None:
    gate = Gate()
    wide = rows(1, 1)._replace(inputs={"x": np.ones((1, 3), np.float32)})
    async with serving(echo(dims=-1), gate=gate) as service:
        first = asyncio.create_task(service.infer(rows(0)))
        await asyncio.to_thread(gate.entered.acquire)
        others = [asyncio.create_task(service.infer(request)) for request in (rows(1), wide, rows(2))]
        await one_turn()
        gate.open()
        await asyncio.wait([first, *others])

        assert [task.result().outputs["y"].shape for task in others] == [(1, 2), (1, 3), (1, 2)]


async def test_a_broken_image_gives_its_place_back() -> None:
    async with serving(mirror()) as service:
        (result,) = (await service.classify(images(b"no number"))).results
        await one_turn()

        assert str(result) == "found b'no number', expected a number"
        assert (counters(service).reserved_requests, counters(service).failures["OTHER"]) == (0, 1)


async def test_a_defect_is_counted_apart() -> None:
    class DefectiveDecoder:
        async def decode(self, data, how):
            raise ZeroDivisionError

    async with serving(mirror(), decoder=DefectiveDecoder()) as service:
        with pytest.raises(ZeroDivisionError):
            await service.classify(images(b"1"))

        assert counters(service).failures["OTHER"] == 1


async def test_a_failed_chunk_leaves_its_caller_uncancelled() -> None:
    caller = asyncio.current_task()
    assert caller is not None
    async with serving(echo(max_batch_rows=2)) as service:
        with pytest.raises(ExecutionError):
            await service.infer(rows(0, 1, 2, 3, POISON, 5))

    assert caller.cancelling() == 0


async def test_the_classes_are_those_of_the_output_with_the_labels() -> None:
    spec = mirror()
    other = replace(spec.outputs[0], name="other", labels=())
    two = replace(spec, outputs=(other, spec.outputs[0]), scores="scores")
    async with serving(two) as service:
        (result,) = (await service.classify(images(b"1", top_k=1))).results

    assert result[0].label == "a"  # the fake's second output is all zeros; the first one has no labels
