"""When a worker counts as hung, and when it is replaced."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.supervision import Condition, RestartBudget, RestartRules, Signs, judge

S = 1_000_000_000
NOW = 100 * S


def signs(*, silent_s: float = 0, busy_s: float = 0, is_stopped: bool = False) -> Signs:
    return Signs(round(NOW - silent_s * S), round(NOW - busy_s * S) if busy_s else 0, is_stopped)


@pytest.mark.parametrize(
    ("seen", "condition", "reason"),
    [
        pytest.param(signs(), Condition.WELL, "", id="beats, idle"),
        pytest.param(signs(busy_s=0.9), Condition.WELL, "", id="a step of usual length"),
        pytest.param(signs(silent_s=0.9, is_stopped=True), Condition.WELL, "", id="stopped for a moment"),
        pytest.param(signs(busy_s=1.5), Condition.STALLED, "a step runs for 1.5 s", id="a long step"),
        pytest.param(signs(silent_s=1.2), Condition.STALLED, "no sign of life for 1.2 s", id="holds the lock"),
        pytest.param(signs(silent_s=1.2, is_stopped=True), Condition.HUNG, "stopped by a signal", id="stopped"),
        pytest.param(signs(silent_s=11), Condition.HUNG, "no sign of life for 11 s", id="mute"),
        pytest.param(signs(silent_s=11, busy_s=4), Condition.STALLED, "no sign of life", id="a step holds the lock"),
        pytest.param(signs(busy_s=6), Condition.HUNG, "longer than 5 s", id="an endless step"),
    ],
)
def test_a_worker_is_judged_by_its_signs(seen: Signs, condition: Condition, reason: str):
    verdict = judge(seen, 5 * S, NOW)

    assert verdict.condition is condition
    assert reason in verdict.reason


def test_the_first_death_costs_no_delay_and_later_ones_double_it_until_the_budget_is_spent():
    budget = RestartBudget(RestartRules(max_restarts=4))

    restarts = [budget.died(NOW + S * number) for number in range(5)]

    assert [round(restart.delay_ns / 1e6) for restart in restarts] == [0, 100, 200, 400, 60_000]
    assert [restart.is_failed for restart in restarts] == [False] * 4 + [True]
    assert budget.restarts == 5


def test_deaths_that_are_long_ago_do_not_count():
    budget = RestartBudget(RestartRules(max_restarts=1))

    restarts = [budget.died(NOW + 61 * S * number) for number in range(10)]

    assert {(restart.delay_ns, restart.is_failed) for restart in restarts} == {(0, False)}


def test_a_failed_worker_that_is_tried_again_and_dies_stays_failed():
    budget = RestartBudget(RestartRules(max_restarts=1, retry_ns=5 * S))

    restarts = [budget.died(NOW + 5 * S * number) for number in range(8)]

    assert [restart.is_failed for restart in restarts] == [False] + [True] * 7


def test_a_failed_worker_that_dies_soon_after_it_was_tried_again_is_as_failed_as_before():
    rules = RestartRules(max_restarts=2)
    budget = RestartBudget(rules)
    for _ in range(3):
        budget.died(NOW)

    soon = budget.died(NOW + rules.retry_ns + 30 * S)
    later = budget.died(NOW + 2 * rules.retry_ns + 3 * rules.window_ns)

    assert soon.is_failed
    assert not later.is_failed


@given(st.lists(st.integers(0, 10 * S), min_size=1, max_size=50), st.integers(-1, 8))
def test_a_delay_is_never_above_the_largest_unless_the_worker_failed(pauses: list[int], max_restarts: int):
    rules = RestartRules(max_restarts=max_restarts)
    budget = RestartBudget(rules)
    now_ns = 0

    for pause_ns in pauses:
        now_ns += pause_ns
        restart = budget.died(now_ns)
        assert restart.delay_ns <= (rules.retry_ns if restart.is_failed else rules.max_delay_ns)
        assert not (restart.is_failed and max_restarts < 0)
