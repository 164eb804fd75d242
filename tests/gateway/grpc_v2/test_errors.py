import grpc
import pytest

from backends.errors import CodeUnknownError
from batching.core.errors import QueueFullError
from gateway.errors import UnknownRegionError
from gateway.grpc_v2.errors import CallError, ServerExitingError, explain_status, find_code
from models.errors import ModelNotFoundError
from tests.gateway.test_errors import LEAVES, leaves_of


@pytest.mark.parametrize("leaf", [*LEAVES, *leaves_of(CallError)], ids=lambda leaf: leaf.__name__)
def test_every_error_has_a_code(leaf: type[Exception]) -> None:
    code = find_code(leaf)

    assert code not in (None, grpc.StatusCode.OK)
    assert (code is grpc.StatusCode.UNKNOWN) == (leaf is CodeUnknownError)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ModelNotFoundError("m"), grpc.StatusCode.NOT_FOUND),
        (QueueFullError(), grpc.StatusCode.UNAVAILABLE),
        (UnknownRegionError("no such region"), grpc.StatusCode.NOT_FOUND),
        (ServerExitingError(), grpc.StatusCode.UNAVAILABLE),
    ],
)
def test_code_and_text_are_those_of_triton(error: Exception, code: grpc.StatusCode) -> None:
    assert explain_status(error) == (code, str(error))


def test_a_defect_is_internal_and_its_text_stays_in_the_log() -> None:
    assert explain_status(ZeroDivisionError("secret")) == (grpc.StatusCode.INTERNAL, "internal error")


def test_a_text_that_no_message_can_hold_is_told_all_the_same() -> None:
    assert explain_status(UnknownRegionError("\ud800"))[1] == "?"
