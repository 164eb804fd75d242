"""`InferenceService.submit`: as `infer`, without a task; the same counters, leases and log lines."""

import asyncio
import logging
from functools import partial

import pytest

from backends.errors import ExecutionError
from batching.clock import MonotonicClock
from batching.core.errors import QueueFullError
from gateway.request_log import LoggedService
from models.errors import InvalidRequestError, ModelNotFoundError
from tests.gateway.serving import POISON, Gate, echo, rows, serving, values


def submit(service, request):
    """The call, and a future of its only reply."""
    reply = asyncio.get_running_loop().create_future()
    return service.submit(request, reply.set_result), reply


async def test_the_reply_is_what_infer_answers() -> None:
    async with serving(echo(version=2)) as service:
        _, reply = submit(service, rows(1, 2, outputs=("y",), request_id="7"))
        response = await reply

        assert (values(response), response.version, response.request_id) == ([1, 2], 2, "7")
        assert service.statistics()[0].success.count == 1


async def test_a_failed_batch_is_the_reply_and_counted() -> None:
    async with serving(echo()) as service:
        _, reply = submit(service, rows(POISON))

        assert isinstance(await reply, ExecutionError)
        assert service.statistics()[0].failures["BACKEND"] == 1


@pytest.mark.parametrize(
    ("request_", "error"), [(rows(1, model="nobody"), ModelNotFoundError), (rows(), InvalidRequestError)]
)
async def test_what_is_not_admitted_is_raised(request_, error) -> None:
    async with serving(echo()) as service:
        with pytest.raises(error):
            service.submit(request_, pytest.fail)


async def test_what_must_be_cut_is_left_to_infer() -> None:
    async with serving(echo(max_batch_rows=4)) as service:
        call, _ = submit(service, rows(*range(10)))

        assert call is None
        assert values(await service.infer(rows(*range(10)))) == list(range(10))


async def test_a_cancelled_call_is_counted_and_its_mates_are_answered() -> None:
    gate = Gate()
    async with serving(echo(), gate=gate) as service:
        _, running = submit(service, rows(1))
        await asyncio.to_thread(gate.entered.acquire)
        leaving, left = submit(service, rows(2))
        _, staying = submit(service, rows(3))
        leaving.cancel()
        gate.open()

        assert isinstance(left.result(), asyncio.CancelledError)
        assert [values(await running), values(await staying)] == [[1], [3]]
        assert service.statistics()[0].failures["CANCELED"] == 1
        assert service.statistics()[0].inference_count == 2


async def test_a_full_queue_refuses_and_keeps_no_lease() -> None:
    gate = Gate()
    async with serving(echo(max_queue_requests=1), gate=gate) as service:
        _, running = submit(service, rows(1))
        await asyncio.to_thread(gate.entered.acquire)
        _, waiting = submit(service, rows(2))
        with pytest.raises(QueueFullError):
            service.submit(rows(3), pytest.fail)
        gate.open()

        assert [values(await running), values(await waiting)] == [[1], [2]]
        assert service.statistics()[0].refused_requests == 1


@pytest.mark.parametrize(
    ("request_", "outcome"), [(rows(1), "ok"), (rows(POISON), "ExecutionError"), (rows(*range(9)), "ok")]
)
async def test_every_request_is_one_log_line(request_, outcome, caplog) -> None:
    kind = partial(LoggedService, MonotonicClock())
    async with serving(echo(), kind=kind) as service:  # type: ignore[arg-type]
        with caplog.at_level(logging.INFO):
            await asyncio.wait([asyncio.ensure_future(service.infer(request_))])

    lines = [entry.fields for entry in caplog.records if entry.name == "shoal.request"]
    assert [line["outcome"] for line in lines] == [outcome]
