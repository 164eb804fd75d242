"""The matrix that holds shoal against other servers: what is played, and how it is judged."""

from collections.abc import Mapping

import pytest

from loadtest.policy_matrix.designed import designed
from loadtest.policy_matrix.held_out import held_out
from loadtest.policy_matrix.promises import Limits, interval, tail_ratio, verdicts
from loadtest.policy_matrix.rivals import rivals
from loadtest.policy_matrix.runs import OURS, Figures, Plan, Played, goodput, play
from loadtest.policy_matrix.scenarios import Scenario, closed_loop, open_load
from loadtest.policy_matrix.served import A10G

CALM = open_load("poisson", A10G, 1, 30, family="Poisson")
LATE = open_load("poisson", A10G, 1, 90, (6,), family="Poisson + deadline")
LOOP = closed_loop(A10G, 1, 8, family="closed")


def figures(
    throughput: float,
    p99_ms: float = 10.0,
    *,
    mean_ms: float = 5.0,
    goodput: float | None = None,
    refuses: bool = False,
) -> Figures:
    return Figures(throughput, throughput if goodput is None else goodput, mean_ms, p99_ms, refuses)


def played(scenario: Scenario, found: Mapping[str, Figures]) -> Played:
    return Played(scenario, {name: [each] for name, each in found.items()}, [name for name in found if name != OURS])


def kept(each: Played, about: str = "") -> list[bool]:
    return [verdict.kept for verdict in verdicts([each], Limits()) if about in verdict.promise]


def test_there_are_89_designed_scenarios_with_names_of_their_own() -> None:
    scenarios = designed()

    assert len(scenarios) == len({scenario.name for scenario in scenarios}) == 89


def test_a_third_more_is_drawn_from_the_seed_alone() -> None:
    names = [scenario.name for scenario in held_out(1)]

    assert len(set(names)) == 45
    assert names == [scenario.name for scenario in held_out(1)]
    assert names != [scenario.name for scenario in held_out(2)]


@pytest.mark.parametrize("has_deadlines", [False, True])
def test_no_two_rivals_share_a_name(has_deadlines: bool) -> None:
    names = [rival.name for rival in rivals(has_deadlines=has_deadlines)]

    assert len(names) == len(set(names))


def test_a_scenario_played_twice_gives_the_same_figures() -> None:
    plan = Plan((1, 2), 1, frozenset({"greedy", "nexus", "triton 1 ms x 8, half"}))

    once, again = play(LATE, plan), play(LATE, plan)

    assert once == again
    assert set(once.figures) == {"greedy", "nexus", "triton 1 ms x 8, half", "shoal", "shoal, cold"}
    assert len(once.figures[OURS]) == 2


def test_a_closed_loop_is_bounded_by_its_batch_and_its_way_back() -> None:
    bound_per_s = LOOP.bound_per_s

    assert bound_per_s == pytest.approx(8 / (0.0063 + 8 * 0.00123 + 0.0006 + 8 * 0.00009))


def test_a_rival_that_refuses_is_no_rival_where_nobody_asked_for_a_deadline() -> None:
    found = played(CALM, {OURS: figures(100), "greedy": figures(99), "shedding": figures(200, refuses=True)})

    assert found.best(goodput) == "greedy"


def test_a_rival_that_refuses_may_have_the_best_goodput() -> None:
    found = played(LATE, {OURS: figures(100), "greedy": figures(99), "shedding": figures(200, refuses=True)})

    assert found.best(goodput) == "shedding"


def test_a_tail_is_compared_with_those_near_the_best_throughput_only() -> None:
    found = played(CALM, {OURS: figures(100, 11), "near": figures(99, 10), "slow": figures(97, 1)})

    assert tail_ratio(found) == pytest.approx(1.1)


def test_whoever_is_below_the_best_throughput_has_no_tail_to_speak_of() -> None:
    found = played(CALM, {OURS: figures(97, 1), "best": figures(100, 10)})

    assert not tail_ratio(found) > 0


def test_an_interval_is_that_of_student() -> None:
    assert interval([1.0, 1.1, 1.2]) == "1.100 +- 0.248"


def test_goodput_far_below_a_rival_breaks_the_promise() -> None:
    good = played(LATE, {OURS: figures(102), "greedy": figures(100)})
    bad = played(LATE, {OURS: figures(92), "greedy": figures(100)})

    assert (kept(good), kept(bad)) == ([True, True], [False, False])


def test_a_mean_latency_above_that_of_greedy_at_low_load_breaks_the_promise() -> None:
    greedy = figures(100, mean_ms=5.0)

    near, far = (played(CALM, {OURS: figures(100, mean_ms=mean_ms), "greedy": greedy}) for mean_ms in (5.05, 5.2))

    assert (kept(near, "mean latency"), kept(far, "mean latency")) == ([True], [False])


def test_a_closed_loop_below_97_percent_of_its_bound_breaks_the_promise() -> None:
    bound_per_s = LOOP.bound_per_s or 0.0

    near, far = (played(LOOP, {OURS: figures(share * bound_per_s), "greedy": figures(1)}) for share in (0.98, 0.96))

    assert (kept(near, "closed loops"), kept(far, "closed loops")) == ([True], [False])
