"""What a body costs: CPU time in proportion to its size, whatever is in it."""

import time
from contextlib import suppress

import pytest

from gateway.v2.body import assemble
from gateway.v2.request import decode_json
from models.errors import InvalidRequestError
from tests.gateway.fake_engine import FakeEngine

FEW, MANY = 10_000, 80_000
PLAIN = b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[1,2],"data":[1,2]}]%s}'
INPUT = b'{"name":"k%d","datatype":"FP32","shape":[1],"data":[1]}'


def bodies(many: int) -> dict[str, bytes]:
    members = b",".join(b'"k%d":1' % number for number in range(many))
    return {
        "members": PLAIN % (b"," + members),
        "parameters": PLAIN % (b',"parameters":{' + members + b"}"),
        "members of an input": PLAIN.replace(b'"data"', members + b',"data"') % b"",
        "parameters of an input": PLAIN.replace(b'"data"', b'"parameters":{' + members + b'},"data"') % b"",
        "inputs": b'{"inputs":[' + b",".join(INPUT % number for number in range(many)) + b"]}",
        "outputs": PLAIN % (b',"outputs":[' + b",".join(b'{"name":"k%d"}' % number for number in range(many)) + b"]"),
        "dimensions": PLAIN.replace(b"[1,2]", b"[" + b"1," * many + b"2]", 1) % b"",
        "rows": PLAIN.replace(b"[1,2]}", b"[" + b"[1]," * many + b"[2]]}") % b"",
        "empty rows": PLAIN.replace(b"[1,2]}", b"[" + b"[]," * many + b"[2]]}") % b"",
        "numbers": PLAIN.replace(b"[1,2]}", b"[" + b"0.5," * many + b"2]}") % b"",
        "strings": PLAIN.replace(b"[1,2]}", b"[" + b'"",' * many + b"2]}") % b"",
        "the same member": PLAIN % (b',"k":1' * many),
    }


@pytest.mark.parametrize("kind", bodies(1))
def test_many_of_anything_cost_no_more_than_their_bytes(kind: str) -> None:
    few, many = (effort_s(bodies(number)[kind]) for number in (FEW, MANY))

    assert many < 40 * few  # in proportion: 8 times; with the square: 64 times


def effort_s(text: bytes) -> float:
    """CPU time of the least disturbed of a few runs."""
    spec, body = FakeEngine().model("ident_fp32"), assemble([text], None)
    times_s = []
    for _ in range(3):
        started_s = time.thread_time()
        with suppress(InvalidRequestError):
            decode_json(spec, None, body, 1 << 20)
        times_s.append(time.thread_time() - started_s)
    return min(times_s)
