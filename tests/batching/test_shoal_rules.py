"""The rules of the shoal policy one by one, on queues made by hand. A batch of b rows takes 100 + 10 b units."""

import pytest

from batching.core.limits import Limits
from batching.core.queue import QueueOrder, WaitingQueue
from batching.core.state import State
from batching.core.tickets import Place, Ticket
from batching.policies.shoal_deadlines import sacrificed, size_in_time, size_of_two
from batching.policies.shoal_estimators import Attendance, Returns, ServiceTimes
from batching.policies.shoal_fleet import Fleet
from batching.policies.shoal_sizes import Scene, best_size, cheapest_size
from batching.policies.shoal_waits import callers_back, grown

UNIT_NS = 10_000
NOW_NS = 100_000 * UNIT_NS
NEVER_NS = float("inf")
UNSURE = 1.05  # a new estimate may be wrong by 5 %


def ticket(number: int, deadline_ns: int | None, rows: int = 1) -> Ticket:
    made = Ticket(number, rows, NOW_NS - 50 * UNIT_NS, deadline_ns)
    made.place = Place.WAITING
    return made


def deadline_of(waiting: Ticket) -> float:
    return NEVER_NS if waiting.deadline_ns is None else waiting.deadline_ns


def scene(deadlines: list[int | None], *, slots: int = 1, busy: int = 0, largest: int = 32) -> Scene:
    """One request of one row for each deadline, which is given in units from now."""
    state = State(Limits(max_batch_rows=largest), WaitingQueue(QueueOrder.DEADLINE), can_abort=False)
    state.now_ns = NOW_NS
    for number in range(slots):
        state.workers.join(f"i{number}", "cpu", 1, None, 0)
    for number in range(busy):
        state.workers.acquire(f"i{number}")
    for number, after in enumerate(deadlines):
        state.queue.append(ticket(number, None if after is None else NOW_NS + after * UNIT_NS))
    times = ServiceTimes({1: 110.0 * UNIT_NS, 32: 420.0 * UNIT_NS})
    head = state.queue.first
    assert head is not None
    return Scene(state, state.instances[-1], times, slots, head, deadline_of(head), state.queue.rows)


def steady(rows: int) -> Attendance:
    attendance = Attendance()
    for _ in range(20):
        attendance.add(rows)
    return attendance


def just_answered(rows: int) -> Returns:
    """Callers that came back after 10 units until now; so many have been answered now."""
    returns = Returns()
    for number in range(200):
        returns.answered(1, number * 100 * UNIT_NS)
        returns.arrived(1, (number * 100 + 10) * UNIT_NS, 50.0 * UNIT_NS)
    returns.answered(rows, NOW_NS)
    return returns


def test_the_queue_is_served_in_the_fewest_batches_where_batches_have_fixed_costs() -> None:
    size = cheapest_size(ServiceTimes({1: 110.0 * UNIT_NS, 32: 420.0 * UNIT_NS}), 20, 0.05)

    assert size == 20


def test_equal_parts_are_as_small_as_a_little_time_allows() -> None:
    times = ServiceTimes({1: 100.0, 2: 198.0, 4: 380.0})

    assert [cheapest_size(times, 4, slack) for slack in (0.0, 0.05, 0.06)] == [4, 2, 1]


def test_with_a_backlog_hardly_any_time_is_given_for_small_batches() -> None:
    lone, backlog = scene([None] * 3, largest=4), scene([None] * 4, largest=4)
    proportional = ServiceTimes({1: 100.0, 2: 198.0, 3: 294.0, 4: 380.0})

    sizes = [best_size(each._replace(times=proportional)) for each in (lone, backlog)]

    assert sizes == [1, 4]


def test_callers_about_to_return_are_waited_for() -> None:
    wait = callers_back(scene([None]), steady(8), just_answered(7))

    assert wait is not None
    assert wait.until_ns == pytest.approx(NOW_NS + 10 * UNIT_NS, abs=UNIT_NS / 10)


def test_nobody_is_waited_for_if_the_house_is_complete() -> None:
    wait = callers_back(scene([None] * 8), steady(8), just_answered(7))

    assert wait is None


def test_of_twice_as_many_callers_as_fit_nobody_is_waited_for() -> None:
    waits = [callers_back(scene([None] * 4, largest=8), steady(house), just_answered(8)) for house in (8, 16)]

    assert [wait is not None for wait in waits] == [True, False]


def test_a_wait_leaves_time_for_the_first_deadline_in_a_batch_of_one_row_more() -> None:
    wait = callers_back(scene([130]), steady(8), just_answered(7))

    assert wait is not None
    assert wait.until_ns == NOW_NS + (130 - UNSURE * 120) * UNIT_NS


def test_a_wait_that_the_first_deadline_does_not_allow_is_none() -> None:
    wait = callers_back(scene([125]), steady(8), just_answered(7))

    assert wait is None


def test_a_wait_is_thought_over_when_half_of_the_callers_are_back() -> None:
    found = scene([None])
    wait = callers_back(found, steady(8), just_answered(7))
    assert wait is not None

    still = []
    for number in range(2, 6):
        found.view.queue.append(ticket(number, None))
        still.append(wait.goes_on(found.view))

    assert still == [True, True, True, False]


def test_a_wait_is_thought_over_when_a_more_urgent_request_comes() -> None:
    found = scene([900])
    wait = callers_back(found, steady(8), just_answered(7))
    assert wait is not None

    found.view.queue.append(ticket(5, NOW_NS + 300 * UNIT_NS))

    assert not wait.goes_on(found.view)


def test_each_of_several_instances_waits_for_its_share_only() -> None:
    waits = [callers_back(scene([None] * rows, slots=2), steady(8), just_answered(7)) for rows in (3, 4)]

    assert [wait is not None for wait in waits] == [True, False]


def test_under_pressure_a_batch_grows_until_the_latest_start_with_one_row_more() -> None:
    wait = grown(scene([300, 400], slots=2, busy=1), 0.2)

    assert wait is not None
    assert wait.until_ns == int(NOW_NS + (300 - UNSURE * 130) * UNIT_NS)


@pytest.mark.parametrize(
    ("found", "pressure"),
    [
        (scene([300], slots=2, busy=1), 0.05),
        (scene([300], slots=2), 0.2),
        (scene([300]), 0.2),
        (scene([None], slots=2, busy=1), 0.2),
        (scene([150, 160], slots=2, busy=1), 0.2),
        (scene([900, 900], slots=2, busy=1, largest=2), 0.2),
    ],
    ids=["no pressure", "nobody else works", "no other instance", "no deadline", "too little patience", "full"],
)
def test_otherwise_it_does_not(found: Scene, pressure: float) -> None:
    assert grown(found, pressure) is None


def test_two_batches_are_split_so_that_both_are_in_time() -> None:
    found = scene([150, 160, 320, 330, 340])  # together they would take 157.5 and be late

    assert size_of_two(found, 5, NEVER_NS, deadline_of) == 4


def test_there_is_no_such_size_if_the_second_batch_would_be_late() -> None:
    found = scene([150, 160, 200, 210, 220])

    assert size_of_two(found, 5, NEVER_NS, deadline_of) == 0


def test_the_second_batch_may_run_on_another_instance() -> None:
    found = scene([150, 160, 200, 210, 220])

    assert size_of_two(found, 5, NOW_NS + 60.0 * UNIT_NS, deadline_of) == 4


def test_the_second_batch_has_at_most_the_largest_size() -> None:
    found = scene([150, 160] + [10_000] * 6, largest=4)

    assert size_of_two(found, 4, NEVER_NS, deadline_of) == 4
    assert size_of_two(found, 3, NEVER_NS, deadline_of) == 0


def test_more_than_two_batches_are_not_looked_at() -> None:
    found = scene([150, 160] + [10_000] * 7, largest=4)

    assert size_of_two(found, 4, NEVER_NS, deadline_of) == 0


def test_a_batch_shrinks_to_what_its_first_request_has_time_for() -> None:
    found = scene([140, 160, 200, 210, 220])

    assert size_in_time(found, 5) == 3


def test_who_is_late_in_the_batch_is_given_up_until_the_rest_is_in_time() -> None:
    found = scene([120, 130, 140, 150, 160])

    assert [gone.id for gone in sacrificed(found, 5)] == [0, 1]


def test_the_very_last_request_is_not_given_up() -> None:
    found = scene([100])

    assert sacrificed(found, 1) == []


def test_the_next_instance_is_free_when_its_batch_should_have_ended() -> None:
    fleet = Fleet({1: 110.0 * UNIT_NS, 32: 420.0 * UNIT_NS})
    state = State(Limits(max_batch_rows=32), WaitingQueue(QueueOrder.DEADLINE), can_abort=False)
    state.workers.join("i0", "cpu", 1, None, 0)
    state.now_ns = NOW_NS
    state.queue.append(ticket(1, None))
    batch = state.new_batch()
    state.take(1, batch, None)
    state.start(batch, None)

    assert fleet.next_free_ns(state.running) == NOW_NS + 110 * UNIT_NS
    assert fleet.next_free_ns([]) == NEVER_NS
