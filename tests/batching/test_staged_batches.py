"""Batches that have not started, as policies see them."""

import pytest

from batching.core.batches import Batch, StagedBatches


def staged(*numbers: int) -> StagedBatches:
    batches = StagedBatches()
    for number in numbers:
        batches.add(Batch(number, opened_ns=0))
    return batches


def test_they_are_a_sequence_in_the_order_in_which_they_were_opened() -> None:
    batches = staged(3, 5, 8)

    assert [batch.id for batch in batches] == [3, 5, 8]
    assert (batches[0].id, batches[1].id, batches[-1].id) == (3, 5, 8)
    assert [batch.id for batch in batches[1:]] == [5, 8]


def test_a_batch_that_started_is_not_among_them() -> None:
    batches = staged(3, 5)
    first = batches[0]

    was_there = batches.discard(first)

    assert (was_there, batches.discard(first), first in batches) == (True, False, False)
    assert (batches.find(3), len(batches), batches[0].id) == (None, 1, 5)


def test_without_any_both_ends_are_missing() -> None:
    batches = staged()

    for index in (0, -1):
        with pytest.raises(IndexError):
            batches[index]
