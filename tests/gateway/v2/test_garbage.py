"""What a refused request leaves behind: not its body, which would stay until the garbage collector runs."""

import gc
import json
import sys
from collections.abc import Iterator

import pytest

from gateway.v2.body import Body, assemble
from gateway.v2.request import decode_json
from models.errors import InvalidRequestError
from models.spec import ModelSpec
from tests.gateway.fake_engine import FakeEngine

SIZE_BYTES = 4096
MISTAKES: dict[str, dict[str, object]] = {
    "wrong size": {},
    "wrong type": {"datatype": "FP64"},
    "unknown type": {"datatype": "FP1"},
    "no strings": {"datatype": "BYTES"},
    "unknown name": {"name": "OTHER"},
    "bytes behind the last input": {"parameters": {"binary_data_size": 5}},
    "too few bytes": {"parameters": {"binary_data_size": SIZE_BYTES + 1}},
    "no shape": {"shape": "none"},
}


def body_with(mistake: dict[str, object]) -> Body:
    tensor = {"name": "IN", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": SIZE_BYTES}}
    text = json.dumps({"inputs": [tensor | mistake]}).encode()
    return assemble([text, b"\xff" * SIZE_BYTES], b"%d" % len(text))


def is_refused(spec: ModelSpec, body: Body) -> bool:
    try:  # pytest.raises would keep the error
        decode_json(spec, None, body, 1 << 20)
    except InvalidRequestError:
        return True
    return False


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.usefixtures("no_collector")
def test_a_refused_body_is_freed_at_once(mistake: str) -> None:
    spec, body = FakeEngine().model("ident_fp32"), body_with(MISTAKES[mistake])
    before = sys.getrefcount(body.data)

    was_refused = is_refused(spec, body)
    after = sys.getrefcount(body.data)

    assert was_refused
    assert after == before
