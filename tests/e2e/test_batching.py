"""Many clients make large batches; a lone one does not wait; everybody gets their own rows."""

import asyncio
import itertools
from typing import Any

import orjson
import pytest

from tests.e2e.models import add_echo
from tests.e2e.server import Server
from tests.e2e.wire import all_of, connect, echoed, infer_body, infer_bytes, post_bytes

pytestmark = pytest.mark.e2e

DELAYED = "dynamic_batching { max_queue_delay_microseconds: 50000 }"
BY_ROW = 'parameters { key: "service_row_us" value: { string_value: "1200" } }'
PATIENT = "dynamic_batching { max_queue_delay_microseconds: 400000 }"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory):
    root = tmp_path_factory.mktemp("batching")
    add_echo(root, "busy", base_us=6000, more=BY_ROW)
    add_echo(root, "greedy", base_us=6000, more=BY_ROW + DELAYED, batching='policy = "greedy"')
    add_echo(root, "triton", base_us=6000, more=BY_ROW + DELAYED)
    add_echo(root, "pairs", max_batch_size=40, more=PATIENT)
    add_echo(root, "texts", max_batch_size=40, data_type="TYPE_STRING", more=PATIENT)
    add_echo(root, "split", max_batch_size=16, base_us=20_000, batching='oversize = "split"')
    with Server(f"--model-repository={root}") as server:
        yield server


def queue_ns(stats: dict[str, Any]) -> int:
    return int(stats["inference_stats"]["queue"]["ns"])


async def test_64_clients_are_answered_in_batches_of_more_than_24_rows_and_each_with_its_own(server: Server) -> None:
    async def converse(client: int) -> None:
        connection = await connect(server.port)
        for turn in range(30):
            value = client * 100 + turn
            answer = await connection.ask(infer_bytes("busy", value))
            assert echoed(orjson.loads(answer.body)) == [value]
        await connection.close()

    await all_of(converse(client) for client in range(64))

    stats = await asyncio.to_thread(server.stats, "busy")
    assert stats["inference_count"] == 64 * 30
    assert stats["inference_count"] / stats["execution_count"] > 24


def test_a_lone_greedy_request_takes_its_compute_time_whatever_the_delay_says(server: Server) -> None:
    totals_ns = [0]
    for value in range(5):
        assert server.client.post("/v2/models/greedy/infer", json=infer_body(value)).status_code == 200
        totals_ns.append(beside_compute_ns(server.stats("greedy")))

    # A busy machine may delay one of them; a delay of the server's making would show in all.
    assert min(after - before for before, after in itertools.pairwise(totals_ns)) < 5_000_000


def beside_compute_ns(stats: dict[str, Any]) -> int:
    """Time from acceptance to answer that was not computing, of all requests."""
    times = stats["inference_stats"]
    compute = ("compute_input", "compute_infer", "compute_output")
    return int(times["success"]["ns"]) - sum(int(times[stage]["ns"]) for stage in compute)


def test_a_lone_request_of_tritons_policy_waits_for_its_delay(server: Server) -> None:
    assert server.client.post("/v2/models/triton/infer", json=infer_body(1)).status_code == 200

    assert queue_ns(server.stats("triton")) >= 50_000_000


async def test_three_callers_of_one_batch_get_their_own_row_and_id(server: Server) -> None:
    async def ask(value: int) -> tuple[str, list[float]]:
        connection = await connect(server.port)
        body = orjson.dumps(infer_body(value, id=f"id-{value}"))
        answer = orjson.loads((await connection.ask(post_bytes("/v2/models/pairs/infer", body))).body)
        await connection.close()
        return answer["id"], echoed(answer)

    answers = await all_of(ask(value) for value in (7, 8, 9))

    assert answers == [("id-7", [7]), ("id-8", [8]), ("id-9", [9])]
    assert (await asyncio.to_thread(server.stats, "pairs"))["execution_count"] == 1


async def test_two_callers_of_one_batch_get_their_own_texts(server: Server) -> None:
    async def ask(text: str) -> list[str]:
        data = [text, text.upper()]
        body = {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1, 2], "data": data}]}
        connection = await connect(server.port)
        answer = await connection.ask(post_bytes("/v2/models/texts/infer", orjson.dumps(body)))
        await connection.close()
        return list(orjson.loads(answer.body)["outputs"][0]["data"])

    answers = await all_of(ask(text) for text in ("a", "é" * 1000))

    assert answers == [["a", "A"], ["é" * 1000, "É" * 1000]]
    assert (await asyncio.to_thread(server.stats, "texts"))["execution_count"] == 1


async def test_singles_get_their_turn_between_the_chunks_of_500_rows(server: Server) -> None:
    large_client, single_client = await connect(server.port), await connect(server.port)
    large = asyncio.create_task(large_client.ask(infer_bytes("split", *range(500))))
    singles = 0
    while not large.done():
        answer = await single_client.ask(infer_bytes("split", -singles))
        assert echoed(orjson.loads(answer.body)) == [-singles]
        singles += 1

    answer = await large

    assert echoed(orjson.loads(answer.body)) == list(range(500))
    assert singles >= 4  # of 32 chunks; behind all of them there would be one
    await all_of([large_client.close(), single_client.close()])
