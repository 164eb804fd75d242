"""Every request is answered as the real Triton 2.51 answers it, or tests/peers/known.py says why not."""

from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest

from tests.peers import grpc_cases, http_cases
from tests.peers.answers import NONE, ask, differences
from tests.peers.cases import (
    binary_bodies,
    generate,
    guarded,
    json_bodies,
    loads,
    management,
    outputs,
    regions,
    routing,
    rpc_infer,
    rpc_management,
)
from tests.peers.conftest import Pair
from tests.peers.known import excuse_of

CROWD = http_cases.body(http_cases.tensor(shape=[1, 2], data=[1, 2]))
pytestmark = [pytest.mark.peer, pytest.mark.timeout(120)]


def named(cases: str, *areas: ModuleType) -> dict[str, Any]:
    """The cases of the areas by their ids."""
    return {
        f"{area.__name__.rpartition('.')[2]}: {name}": case
        for area in areas
        for name, case in getattr(area, cases).items()
    }


HTTP_CASES = named("CASES", routing, json_bodies, binary_bodies, outputs, generate, management)
GRPC_CASES = named("CASES", rpc_infer, rpc_management)
REGION_CASES = named("CASES", regions)
LOAD_CASES, LOAD_RPC_CASES = named("CASES", loads), named("RPC_CASES", loads)
GUARDED_CASES, GUARDED_RPC_CASES = named("CASES", guarded), named("RPC_CASES", guarded)
ALL_CASES = {
    *HTTP_CASES, *GRPC_CASES, *REGION_CASES, *LOAD_CASES, *LOAD_RPC_CASES, *GUARDED_CASES, *GUARDED_RPC_CASES,
}  # fmt: skip


def judge(name: str, found: list[str]) -> None:
    """Fail for a difference that nobody knows, and for a known one that is gone."""
    excuse = excuse_of(name)
    if excuse is None and found:
        pytest.fail("\n".join(found), pytrace=False)
    if excuse is not None and not found:
        pytest.fail(f"the difference is gone: take it out of tests/peers/known.py ({excuse})", pytrace=False)


def compare_http(pair: Pair, name: str, case: http_cases.Case | http_cases.Request) -> None:
    found: list[str] = []
    for request in http_cases.steps_of(case):
        theirs = ask(pair.triton.http_port, request)
        assert theirs != NONE, "Triton gave no answer: such requests have no place among the cases"
        found += differences(ask(pair.shoal.port, request)._asdict(), theirs._asdict(), request.path)
    judge(name, found)


def compare_grpc(pair: Pair, name: str, case: grpc_cases.Call | tuple[grpc_cases.Call, ...]) -> None:
    found: list[str] = []
    for call in grpc_cases.steps_of(case):
        found += differences(pair.shoal_grpc.ask(call), pair.triton_grpc.ask(call), call.method)
    judge(name, found)


@pytest.mark.parametrize("name", HTTP_CASES)
def test_over_http(pair: Pair, name: str) -> None:
    compare_http(pair, name, HTTP_CASES[name])


@pytest.mark.parametrize("name", GRPC_CASES)
def test_over_grpc(pair: Pair, name: str) -> None:
    compare_grpc(pair, name, GRPC_CASES[name])


@pytest.mark.parametrize("name", REGION_CASES)
def test_in_shared_memory(pair: Pair, segment: None, name: str) -> None:
    compare_http(pair, name, REGION_CASES[name])


@pytest.mark.parametrize("model", ["crowded", "hurried"])
def test_what_a_full_and_a_slow_queue_refuse(pair: Pair, model: str) -> None:
    def answers(port: int) -> set[tuple[int, str]]:
        with ThreadPoolExecutor(max_workers=12) as threads:
            found = threads.map(lambda _: ask(port, http_cases.infer(model, CROWD)), range(12))
        return {(answer.status, str(answer.content)) for answer in found}

    ours, theirs = answers(pair.shoal.port), answers(pair.triton.http_port)

    assert {status for status, _ in theirs} == {200, 503}
    assert ours == theirs


@pytest.mark.parametrize("name", LOAD_CASES)
def test_loads_and_unloads(loading_pair: Pair, name: str) -> None:
    compare_http(loading_pair, name, LOAD_CASES[name])


@pytest.mark.parametrize("name", LOAD_RPC_CASES)
def test_loads_and_unloads_over_grpc(loading_pair: Pair, name: str) -> None:
    compare_grpc(loading_pair, name, LOAD_RPC_CASES[name])


@pytest.mark.parametrize("name", GUARDED_CASES)
def test_over_http_with_headers_that_count(guarded_pair: Pair, name: str) -> None:
    compare_http(guarded_pair, name, GUARDED_CASES[name])


@pytest.mark.parametrize("name", GUARDED_RPC_CASES)
def test_over_grpc_with_metadata_that_counts(guarded_pair: Pair, name: str) -> None:
    compare_grpc(guarded_pair, name, GUARDED_RPC_CASES[name])
