"""What the shoal policy does, each behaviour as a sentence. Times in us unless a name says otherwise."""

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batching.clock import MICROSECOND_NS, MILLISECOND_NS
from batching.core.commands import Start
from batching.core.events import Arrived, BatchDone, InstanceFree, InstanceJoined
from batching.core.limits import Limits
from batching.policies.greedy import Greedy
from batching.policies.shoal import Shoal, ShoalSettings
from batching.simulation import (
    Affine,
    Arrival,
    ClosedLoop,
    House,
    Link,
    Outcome,
    Poisson,
    Requests,
    Service,
    Simulation,
    Statistics,
    Table,
    simulate,
)
from tests.batching.builders import arrivals, scheduler, starts

A10G = Affine(6, 1.2)
CPU = Table.of_rates({1: 226, 2: 219, 4: 221, 8: 197, 16: 185, 32: 166})
ROOMY = {"max_requests": 100_000, "max_rows": 100_000}


def warm_us(base: int, row: int, largest: int = 32) -> dict[int, float]:
    return {1 << power: float(base + row * (1 << power)) for power in range(largest.bit_length())}


def shoal(base: int = 6000, row: int = 1200, largest: int = 32, **fields: object) -> Shoal:
    return Shoal(ShoalSettings(warm_up_us=warm_us(base, row, largest), **fields))


def play(
    policy: Shoal,
    load: Sequence[Arrival],
    *,
    base: int = 6000,
    row: int = 1200,
    largest: int = 32,
    instances: int = 1,
) -> Outcome:
    names = [f"i{number}" for number in range(instances)]
    return Simulation(
        scheduler(policy, largest, **ROOMY), lambda rows: (base + row * rows) * MICROSECOND_NS, names
    ).run(load)


def patient(text: str, patience_us: int) -> list[Arrival]:
    return [arrival._replace(patience_ns=patience_us * MICROSECOND_NS) for arrival in arrivals(text)]


def test_a_lone_request_on_an_idle_server_starts_at_once() -> None:
    outcome = play(shoal(), arrivals("a@0 b@50000 c@100000"))

    assert starts(outcome) == "0:a 50000:b 100000:c"


def test_what_piles_up_while_the_instance_is_busy_runs_together() -> None:
    outcome = play(shoal(), arrivals("a@0 b@100 c@200 d@300"))

    assert starts(outcome) == "0:a 7200:bcd"


def test_a_batch_never_passes_the_cap() -> None:
    outcome = play(shoal(largest=2), arrivals("a@0 b@100 c@200 d@300"), largest=2)

    assert starts(outcome) == "0:a 7200:bc 15600:d"


def test_where_batching_saves_nothing_small_batches_answer_sooner() -> None:
    outcome = play(shoal(base=1, row=4000), arrivals("a@0 b@100 c@200 d@300"), base=1, row=4000)

    assert [execution.rows for execution in outcome.executions] == [1, 1, 1, 1]


def test_a_size_chosen_by_time_says_so() -> None:
    outcome = play(shoal(base=1, row=4000), arrivals("a@0 b@100 c@200"), base=1, row=4000)

    assert [execution.reason for execution in outcome.executions] == ["eager", "sized", "eager"]


def test_idle_instances_share_what_waits() -> None:
    outcome = play(shoal(), arrivals("a@0 b@0 c@0 d@0 e@0 f@0"), instances=2)

    assert [(execution.instance, execution.rows) for execution in outcome.executions] == [("i0", 3), ("i1", 3)]


def test_rows_that_cost_almost_nothing_are_not_shared() -> None:
    outcome = play(shoal(base=6000, row=10), arrivals("a@0 b@0 c@0 d@0"), base=6000, row=10, instances=2)

    assert [execution.rows for execution in outcome.executions] == [4]


def test_two_shapes_never_share_a_batch() -> None:
    outcome = play(shoal(), arrivals("a@0#p b@100#p c@200#q d@300#q"))

    assert starts(outcome) == "0:a 7200:b 14400:cd"


def test_the_earliest_deadline_runs_first() -> None:
    load = arrivals("a@0 b@100 c@200 d@300")
    load[3] = load[3]._replace(patience_ns=20 * MILLISECOND_NS)

    outcome = play(shoal(largest=2), load, largest=2)

    assert starts(outcome) == "0:a 7200:db 15600:c"


def test_a_request_that_cannot_make_its_deadline_alone_is_refused() -> None:
    load = [*arrivals("a@0"), *patient("b@100", 9_000), *arrivals("c@200")]

    outcome = play(shoal(), load)

    assert outcome.dropped == [("b", 7_200_000, "hopeless")]
    assert starts(outcome) == "0:a 7200:c"


def test_if_the_queue_makes_it_in_two_batches_nobody_is_refused() -> None:
    load = [*arrivals("a@0"), *patient("b@100", 18_000), *patient("c@200 d@300 e@400 f@500 g@600", 35_000)]

    outcome = play(shoal(), load)

    assert outcome.dropped == []
    assert [execution.reason for execution in outcome.executions] == ["eager", "deadline", "eager"]
    assert starts(outcome).startswith("0:a 7200:bc")


def test_the_second_of_the_two_may_start_when_another_instance_is_free() -> None:
    load = [
        *arrivals("a@0 p@1000"),
        *patient("b@1100", 17_900),
        *patient("c@1200 d@1201 e@1202 f@1203 g@1204 h@1205 i@1206", 18_800),
    ]

    outcome = play(shoal(), load, instances=2)

    assert outcome.dropped == []
    assert starts(outcome) == "0:a 1000:p 7200:bcde 8200:fghi"


def test_otherwise_the_earliest_are_given_up_so_that_the_rest_is_in_time() -> None:
    load = [*arrivals("a@0"), *patient("b@100 c@1000 d@4000 e@5000 f@6000", 18_000)]

    outcome = play(shoal(), load)

    assert [(name, reason) for name, _, reason in outcome.dropped] == [("b", "overloaded")]
    assert starts(outcome) == "0:a 7200:cdef"
    assert outcome.expired == []


def test_told_to_refuse_only_the_hopeless_it_shrinks_the_batch_instead() -> None:
    load = [*arrivals("a@0"), *patient("b@100 c@1000 d@4000 e@5000 f@6000", 18_000)]

    outcome = play(shoal(refuse="hopeless"), load)

    assert starts(outcome).startswith("0:a 7200:bcd ")
    assert {reason for _, _, reason in outcome.dropped} <= {"hopeless"}


def test_requests_without_a_deadline_are_never_refused() -> None:
    load = [*arrivals("a@0 c@200 d@300 e@400"), *patient("b@500", 9_000)]

    outcome = play(shoal(), load)

    assert [name for name, _, _ in outcome.dropped] == ["b"]
    assert starts(outcome) == "0:a 7200:cde"


def test_an_objective_chooses_sizes_like_a_deadline() -> None:
    load = arrivals("a@0 b@100 c@7100 d@7110 e@7120 f@7130 g@7140 h@7150 i@7160 j@7170")

    outcome = play(shoal(latency_objective_us=24_200), load)

    assert [execution.reason for execution in outcome.executions] == ["eager", "deadline", "eager"]


def test_nobody_is_refused_for_an_objective() -> None:
    load = arrivals(" ".join(f"r{number}@{number * 100}" for number in range(100)))

    outcome = play(shoal(latency_objective_us=10_000), load)

    assert outcome.dropped == []
    assert sum(execution.rows for execution in outcome.executions) == 100


def test_the_time_of_a_failed_batch_is_not_learned() -> None:
    served = scheduler(shoal(), 32)
    served.handle([InstanceJoined("i")], 0)
    now_ns = 0

    for _ in range(5):
        ticket = served.reserve(1, now_ns)
        (start,) = served.handle([Arrived(ticket)], now_ns)
        now_ns += 10_000 * MILLISECOND_NS
        served.handle([BatchDone(start.batch), InstanceFree(start.batch, failed=True)], now_ns)
    patient_one = served.reserve(1, now_ns, deadline_ns=now_ns + 10 * MILLISECOND_NS)

    assert isinstance(served.handle([Arrived(patient_one)], now_ns)[0], Start)


@pytest.mark.parametrize("fraction", [0.25, 4.0])
def test_an_estimate_wrong_by_four_recovers_under_tight_deadlines(fraction: float) -> None:
    wrong = {rows: fraction * time_us for rows, time_us in warm_us(6000, 1200).items()}
    load = Poisson(80, Requests(patience_ns=20 * MILLISECOND_NS))

    later = simulate(
        lambda: Shoal(ShoalSettings(warm_up_us=wrong)), load, Service(A10G, noise=0.03), duration_s=30, warm_up_s=10
    )

    assert later.in_time_share > 0.97


def test_deadlines_that_only_the_former_speed_could_meet_are_met_again_when_it_is_back() -> None:
    load = Poisson(80, Requests(patience_ns=20 * MILLISECOND_NS))
    slow_meanwhile = Service(A10G, noise=0.03, drift=((5.0, 4.0), (15.0, 1.0)))

    later = simulate(Shoal, load, slow_meanwhile, duration_s=40, warm_up_s=25)

    assert later.in_time_share > 0.97


def closed(make_policy: Callable[[], Shoal | Greedy], clients: int, instances: int = 1) -> Statistics:
    turn_around = Link(first_answer=Affine(0.67, 0.02), answer_gap_ms=0.07)
    return simulate(
        make_policy,
        ClosedLoop(clients=clients),
        Service(A10G, noise=0.03),
        House(limits=Limits(max_batch_rows=32, **ROOMY), network=turn_around, instances=instances),
        duration_s=5,
    )


@pytest.mark.parametrize("clients", [4, 8, 16, 32])
def test_callers_in_a_closed_loop_are_served_together(clients: int) -> None:
    bound_per_s = clients * 1000 / (6 + 1.2 * clients + 0.6 + 0.09 * clients)

    statistics = closed(shoal, clients)

    assert statistics.throughput_per_s >= 0.97 * bound_per_s


def test_a_cold_start_finds_out_about_a_closed_loop_by_itself() -> None:
    statistics = closed(Shoal, 8)

    assert statistics.throughput_per_s >= 440


def test_callers_of_two_instances_are_served_in_two_groups() -> None:
    statistics = closed(shoal, 8, instances=2)

    assert statistics.throughput_per_s > 1.2 * closed(Greedy, 8, instances=2).throughput_per_s


def test_instances_that_cannot_keep_up_with_deadlines_make_larger_batches() -> None:
    load = Poisson(8 * 720, Requests(patience_ns=22 * MILLISECOND_NS))
    house = House(limits=Limits(max_batch_rows=32, **ROOMY), instances=8)

    statistics = simulate(shoal, load, Service(A10G, noise=0.03), house, duration_s=2)

    assert statistics.mean_batch_rows > 9
    assert statistics.in_time_share > 0.72


@pytest.mark.parametrize("load_share", [0.1, 0.3, 0.5])
def test_random_arrivals_are_not_held_up(load_share: float) -> None:
    load = Poisson(load_share * 720)

    ours, greedy = (simulate(policy, load, Service(A10G, noise=0.03), duration_s=20) for policy in (shoal, Greedy))

    assert ours.latency.mean_ms <= 1.02 * greedy.latency.mean_ms


def test_small_batches_are_found_out_where_large_ones_are_slower() -> None:
    load, house = Poisson(0.8 * 226), House(limits=Limits(max_batch_rows=32, **ROOMY))

    ours, greedy = (
        simulate(policy, load, Service(CPU, noise=0.03), house, duration_s=60) for policy in (Shoal, Greedy)
    )

    assert ours.mean_batch_rows < 3
    assert ours.latency.mean_ms < 100 < greedy.latency.mean_ms


def test_an_unequal_instance_gets_what_it_can_do_in_time() -> None:
    load = Poisson(100, Requests(patience_ns=25 * MILLISECOND_NS))
    service = Service(A10G, factors={"instance_1": 2.0})

    statistics = simulate(Shoal, load, service, House(instances=2), duration_s=20)

    assert statistics.in_time_share > 0.98


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"latency_objective_us": 0}, "latency_objective_us"),
        ({"refuse": "everybody"}, "refuse"),
        ({"warm_up_us": {0: 5.0}}, "warm_up_us"),
        ({"warm_up_us": {1: 0.0}}, "warm_up_us"),
    ],
)
def test_an_impossible_setting_is_refused_by_name(fields: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        ShoalSettings(**fields)


LARGEST = 8


@st.composite
def loads(draw: st.DrawFn) -> list[Arrival]:
    patience = st.none() | st.integers(1, 30_000_000)
    return [
        Arrival(
            name=f"r{number}",
            at_ns=at_ns,
            rows=draw(st.integers(1, LARGEST)),
            patience_ns=draw(patience),
            leaves_ns=draw(patience),
            priority=draw(st.integers(0, 2)),
            shape_key=draw(st.sampled_from("pq")),
        )
        for number, at_ns in enumerate(sorted(draw(st.lists(st.integers(0, 40_000_000), max_size=60))))
    ]


@given(
    loads(),
    st.integers(1, 3),
    st.sampled_from(["sacrifice", "hopeless"]),
    st.none() | st.integers(1, 20_000),
    st.sampled_from([{}, warm_us(600, 120), warm_us(3000, 600)]),
)
@settings(deadline=None, max_examples=150)
def test_every_request_ends_once_and_no_law_is_broken(
    load: list[Arrival], instances: int, refuse: str, objective_us: int | None, known_us: dict[int, float]
) -> None:
    policy = Shoal(ShoalSettings(refuse=refuse, latency_objective_us=objective_us, warm_up_us=known_us))
    names = [f"i{number}" for number in range(instances)]

    outcome = Simulation(scheduler(policy, LARGEST), lambda rows: (600 + 120 * rows) * MICROSECOND_NS, names).run(load)

    without_deadline = {arrival.name for arrival in load if arrival.patience_ns is None}
    started = Counter(name for execution in outcome.executions for name in execution.members)
    dropped = Counter(name for name, _, _ in outcome.dropped)
    assert all(execution.rows <= LARGEST for execution in outcome.executions)
    assert max((started + dropped).values(), default=1) == 1
    assert not without_deadline & dropped.keys()
    ended = {*started, *dropped, *(name for name, _ in outcome.expired), *(name for name, _ in outcome.refused)}
    assert {arrival.name for arrival in load if arrival.leaves_ns is None} <= ended
