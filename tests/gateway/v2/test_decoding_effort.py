"""What a body costs grows with its size and no faster: with its square, these tests would not end in their time."""

from collections.abc import Callable

import pytest

from gateway.v2.body import assemble
from gateway.v2.request import Decoded, decode_json
from models.errors import InvalidRequestError
from tests.gateway.fake_engine import FakeEngine

pytestmark = pytest.mark.slow

MANY = 200_000  # with the square it takes a minute, in proportion a second at most
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


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", bodies(1))
def test_many_of_anything_come_to_an_end(kind: str) -> None:
    spec, body = FakeEngine().model("ident_fp32"), assemble([bodies(MANY)[kind]], None)

    outcome = outcome_of(lambda: decode_json(spec, None, body, 64 << 20))

    assert isinstance(outcome, Decoded | InvalidRequestError)


def outcome_of(read: Callable[[], Decoded]) -> Decoded | InvalidRequestError:
    try:
        return read()
    except InvalidRequestError as error:
        return error
