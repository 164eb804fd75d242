"""Requests of the wrong size, type or form. They get a 4xx with a reason and cost nobody else anything."""

import gzip
import json
import zlib
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import GOOD_PHOTO
from tests.e2e.server import Server
from tests.e2e.wire import echoed, infer_body

pytestmark = pytest.mark.e2e


def infer(server: Server, model: str, *rows: float) -> httpx.Response:
    return server.client.post(f"/v2/models/{model}/infer", json=infer_body(*rows))


def test_oversized_and_small_requests_in_turn_all_keep_their_rows(unharmed: Server) -> None:
    for count in (10, 2, 10, 500, 5, 6):
        rows = list(range(count))

        answer = infer(unharmed, "splitting", *rows)

        assert echoed(answer.json()) == rows


@pytest.mark.parametrize("count", [6, 500])
def test_a_refused_oversized_request_learns_the_limit(unharmed: Server, count: int) -> None:
    answer = infer(unharmed, "refusing", *range(count))

    assert answer.status_code == 400
    assert "batch-size must be <= 5 for 'refusing'" in answer.json()["error"]


def test_more_rows_than_the_queue_may_ever_hold_are_refused_when_splitting_too(unharmed: Server) -> None:
    answer = infer(unharmed, "splitting", *range(4097))

    assert answer.status_code == 400
    assert "4097 rows" in answer.json()["error"]


def echo_input(**changes: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2], **changes}]}


def without(member: str) -> dict[str, Any]:
    (item,) = echo_input()["inputs"]
    return {"inputs": [{name: value for name, value in item.items() if name != member}]}


UNSIGNED = "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer"
WRONG_COUNT = "Unable to parse 'data': Shape does not match true shape of 'data' field"
WRONG_JSON: dict[str, tuple[Any, int, str]] = {
    "shape is a string": (echo_input(shape="-1"), 500, "Unable to parse 'shape': attempt to access JSON non-array"),
    "unknown datatype": (echo_input(datatype="STRING"), 400, "invalid datatype for input x"),
    "data are objects": (echo_input(data=[{"b64": "aGk="}, 1]), 500, "attempt to access JSON non-number as double"),
    "data are too long": (echo_input(data=[1, 2, 3]), 500, WRONG_COUNT),
    "data are too short": (echo_input(data=[1]), 500, WRONG_COUNT),
    "a negative dim": (echo_input(shape=[-1, 2]), 500, UNSIGNED),
    "a huge dim": (echo_input(shape=[2**63, 2]), 400, "causes total element count to exceed maximum size of"),
    "a product of dims that overflows": (echo_input(shape=[2**40, 2**40]), 400, "causes total element count to exceed"),
    "a dim that is a fraction": (echo_input(shape=[1.5, 2]), 500, UNSIGNED),
    "a dim that is no number": (echo_input(shape=[float("nan"), 2]), 500, UNSIGNED),
    "a zero dim": (echo_input(shape=[0, 2], data=[]), 400, "Expected 8, got 0"),
    "no inputs": ({}, 500, "attempt to access non-existing object member 'inputs'"),
    "inputs is an object": ({"inputs": {}}, 500, "Unable to parse 'inputs': attempt to access JSON non-array as array"),
    "an input is a number": ({"inputs": [7]}, 400, "But no field is set"),
    "no name": (without("name"), 500, "attempt to access non-existing object member 'name'"),
    "no shape": (without("shape"), 500, "attempt to access non-existing object member 'shape'"),
    "no data": (without("data"), 400, "But no field is set"),
    "the same name twice": ({"inputs": echo_input()["inputs"] * 2}, 400, "input 'x' already exists in request"),
    "a list at the top": ([], 500, "non-existing object member 'inputs'"),
    "200,000 outputs": ({**echo_input(), "outputs": [{"name": "y"}] * 200_000}, 400, "'y' already exists"),
}


@pytest.mark.parametrize("mistake", WRONG_JSON)
def test_json_of_the_wrong_types_is_refused_in_tritons_words(unharmed: Server, mistake: str) -> None:
    body, status, text = WRONG_JSON[mistake]

    answer = unharmed.client.post("/v2/models/echo/infer", content=json.dumps(body))

    assert (answer.status_code, text in answer.json()["error"]) == (status, True), answer.text


BROKEN_JSON = {
    "100,000 levels deep": (b"[" * 100_000 + b"]" * 100_000, 400, "nested too deeply"),
    "data 100,000 levels deep": (
        b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}",
        400,
        "nested too deeply",
    ),
    "cut off": (b'{"inputs":[{"name":"x"', 500, "failed to parse the request JSON"),
    "not UTF-8": (b'{"inputs":"\xff"}', 500, "attempt to access JSON non-array as array"),
}


@pytest.mark.parametrize("mistake", BROKEN_JSON)
def test_what_is_not_json_is_refused_by_both_surfaces(unharmed: Server, mistake: str) -> None:
    body, status, text = BROKEN_JSON[mistake]
    headers = {"content-type": "application/json"}

    infer_answer = unharmed.client.post("/v2/models/echo/infer", content=body, headers=headers)
    classify_answer = unharmed.client.post("/classify/mirror", content=body, headers=headers)

    assert (infer_answer.status_code, text in infer_answer.json()["error"]) == (status, True), infer_answer.text
    assert classify_answer.status_code == 400
    assert "failed to parse the request JSON" in classify_answer.json()["error"]


BOUNDARY = "multipart/form-data; boundary=b"


def form(*parts: bytes) -> bytes:
    return b"".join(b"--b\r\n" + part + b"\r\n" for part in parts) + b"--b--\r\n"


PHOTO_PART = b'content-disposition: form-data; name="image"; filename="x"\r\n\r\n' + GOOD_PHOTO
FORMS = {
    "no boundary": ("multipart/form-data", form(PHOTO_PART), "boundary of 0 bytes"),
    "a boundary that does not occur": ("multipart/form-data; boundary=c", form(PHOTO_PART), "multipart body"),
    "truncated": (BOUNDARY, form(PHOTO_PART)[:-200], "closing boundary is missing"),
    "10,000 parts": (BOUNDARY, form(*[PHOTO_PART[:70] + b"x"] * 10_000), "more than 1024 parts"),
    "no parts": (BOUNDARY, form(), "no image"),
    "an empty body": (BOUNDARY, b"", "multipart body"),
    "text fields only": (BOUNDARY, form(b'content-disposition: form-data; name="top_k"\r\n\r\n3'), "no image"),
    "a bad top_k": (
        BOUNDARY,
        form(PHOTO_PART, b'content-disposition: form-data; name="top_k"\r\n\r\nmany'),
        "top_k: found 'many', expected a number from 1 to 1000",
    ),
    "an endless header": (BOUNDARY, form(b"x: " + b"y" * 100_000 + b"\r\n\r\n"), "header"),
    "JSON called a form": (BOUNDARY, b'{"images":[]}', "multipart body"),
    "a form called JSON": ("application/json", form(PHOTO_PART), "failed to parse the request JSON"),
}


@pytest.mark.parametrize("mistake", FORMS)
def test_a_bad_form_is_refused_with_what_is_wrong(unharmed: Server, mistake: str) -> None:
    content_type, body, text = FORMS[mistake]

    answer = unharmed.client.post("/classify/mirror", content=body, headers={"content-type": content_type})

    assert answer.status_code == 400, answer.text
    assert text in answer.json()["error"]


def test_a_form_called_an_image_is_no_image(unharmed: Server) -> None:
    headers = {"content-type": "image/jpeg"}

    answer = unharmed.client.post("/classify/mirror", content=form(PHOTO_PART), headers=headers)

    assert answer.status_code == 415
    assert "found: text beginning '--b" in answer.json()["error"]


CODINGS = {
    "gzip": (gzip.compress, 200),
    "deflate": (zlib.compress, 200),
    "br": (bytes, 501),
    "gzip, gzip": (lambda body: gzip.compress(gzip.compress(body)), 501),
}


@pytest.mark.parametrize("coding", CODINGS)
def test_a_compressed_request_is_unpacked_or_refused_by_name(unharmed: Server, coding: str) -> None:
    compress, expected_status = CODINGS[coding]
    body = httpx.Request("POST", "http://x", json=infer_body(*range(32))).content

    answer = unharmed.client.post("/v2/models/echo/infer", content=compress(body), headers={"content-encoding": coding})

    assert answer.status_code == expected_status
    assert expected_status != 200 or echoed(answer.json()) == list(range(32))


def test_a_compressed_bomb_is_refused_when_it_passes_the_limit(unharmed: Server) -> None:
    block = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = block.compress(bytes(1 << 28)) + block.flush()  # 256 MiB in 260 KB, the limit is 64 MiB
    before_kib = unharmed.peak_memory_kib(forget=True)

    answer = unharmed.client.post("/v2/models/echo/infer", content=bomb, headers={"content-encoding": "gzip"})

    assert answer.status_code == 400
    assert unharmed.peak_memory_kib() - before_kib < (64 + 16) << 10
