import pytest

from backends.errors import BackendError
from batching.core.errors import BatchingError, QueueFullError
from gateway.errors import CLASSIFY_ERRORS, V2_ERRORS, ErrorTable, GatewayError, find_row
from models.errors import MalformedRequestError, ModelsError

ROOTS = (ModelsError, BatchingError, BackendError, GatewayError)


def leaves_of(error_type: type[Exception]) -> list[type[Exception]]:
    children = error_type.__subclasses__()
    return [leaf for child in children for leaf in leaves_of(child)] if children else [error_type]


LEAVES = sorted({leaf for root in ROOTS for leaf in leaves_of(root)}, key=lambda leaf: leaf.__qualname__)


@pytest.mark.parametrize("table", [V2_ERRORS, CLASSIFY_ERRORS], ids=["v2", "classify"])
@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.__name__)
def test_every_error_has_a_row_on_every_surface(table: ErrorTable, leaf: type[Exception]) -> None:
    row = find_row(table, leaf)

    assert row is not None
    assert 400 <= row.status <= 599


def test_a_class_without_a_row_of_its_own_gets_its_nearest_ancestors() -> None:
    class TornBodyError(MalformedRequestError):
        pass

    row = find_row(V2_ERRORS, TornBodyError)

    assert row is V2_ERRORS[MalformedRequestError]


def test_an_undeclared_error_has_no_row() -> None:
    assert find_row(V2_ERRORS, ZeroDivisionError) is None


def test_a_full_queue_is_503_on_v2_and_429_with_retry_after_on_classify() -> None:
    v2, classify = (find_row(table, QueueFullError) for table in (V2_ERRORS, CLASSIFY_ERRORS))

    assert v2 is not None
    assert classify is not None
    assert (v2.status, classify.status, classify.retry_after_s) == (503, 429, 1)
