"""Batches of chosen requests, and of requests with places."""

import pytest

from batching.core.actions import Launch, StartBatch, Take
from batching.core.batches import CloseReason
from batching.core.commands import Start
from batching.core.errors import PolicyError
from batching.core.events import Arrived, InstanceJoined
from batching.core.limits import Limits
from batching.core.queue import QueueOrder
from batching.core.scheduler import Scheduler

EAGER = CloseReason.EAGER


class Choosing:
    """Plays, once three requests wait, the actions that a function makes of them."""

    queue_order = QueueOrder.ARRIVAL

    def __init__(self, act):
        self.act = act

    def decide(self, view, news):
        return self.act(list(view.queue)) if len(view.queue) == 3 else ()

    def wake_at_ns(self, view):
        return None


def commands(act) -> list:
    subject = Scheduler(Choosing(act), Limits(max_batch_rows=4))
    tickets = [subject.reserve(rows, 0) for rows in (1, 2, 1)]
    assert tickets == [1, 2, 3]
    return subject.handle([InstanceJoined("i0"), *map(Arrived, tickets)], 0)


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda q: [Launch(2, EAGER, tickets=[q[2], q[0]])], id="launch"),
        pytest.param(lambda q: [Take(2, tickets=[q[2], q[0]]), StartBatch(1)], id="take"),
        pytest.param(
            lambda q: [Take(1, tickets=[q[2]]), Take(1, into=1, tickets=[q[0]]), StartBatch(1)], id="take-one-by-one"
        ),
    ],
)  # fmt: skip
def test_chosen_requests_run_in_the_given_order(act):
    (start,) = commands(act)

    assert (start.tickets, start.rows, start.slots) == ((3, 1), 2, None)


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda q: [Launch(2, EAGER, tickets=[q[0], q[2]], slots=(1, 5))], id="launch"),
        pytest.param(lambda q: [Take(2, tickets=[q[0], q[2]]), StartBatch(1, slots=(1, 5))], id="start"),
    ],
)
def test_the_driver_is_told_the_places_of_the_members(act):
    (start,) = commands(act)

    assert isinstance(start, Start)
    assert start.slots == (1, 5)


@pytest.mark.parametrize(
    ("act", "law"),
    [
        pytest.param(lambda q: [Launch(0, EAGER, tickets=[])], "there are none", id="nobody"),
        pytest.param(lambda q: [Launch(2, EAGER, tickets=[q[0], q[0]])], "one comes twice", id="twice"),
        pytest.param(lambda q: [Take(1), Launch(1, EAGER, tickets=[q[0]])], "it is staged", id="taken-already"),
        pytest.param(
            lambda q: [Take(1), StartBatch(1), Take(1, into=1, tickets=[q[1]])], "not staged", id="into-a-running-one"
        ),
        pytest.param(lambda q: [Launch(1, EAGER, tickets=[q[0]], slots=(0, 1))], "2 slots are given", id="places"),
    ],
)  # fmt: skip
def test_a_policy_that_chooses_wrongly_is_found_out(act, law):
    with pytest.raises(PolicyError, match=law):
        commands(act)
