"""Requests of TorchServe's own API are told what answers them here."""

import pytest

from gateway.torchserve_paths import MOVED, Moved, hint
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.serving import client_of


@pytest.mark.parametrize("entry", MOVED, ids=lambda entry: f"{entry.method} {entry.call}")
async def test_a_request_of_torchserve_is_told_what_answers_here(entry: Moved) -> None:
    path = entry.call.format(model="resnet", version="2.0")

    async with client_of(FakeEngine()) as client:
        answer = await client.request(entry.method or "POST", path)

    # /models itself is served, so that another method is not allowed there.
    assert answer.status_code in {404, 405}
    assert entry.instead.format(model="resnet", version="2.0") in answer.json()["error"]


async def test_what_is_nobodys_is_not_found() -> None:
    async with client_of(FakeEngine()) as client:
        answer = await client.get("/no/such/path")

    assert (answer.status_code, answer.json()) == (404, {"error": "Not Found"})


def test_names_are_taken_as_they_are() -> None:
    assert "/v2/models/{version}/infer" in hint("POST", "/predictions/{version}")
