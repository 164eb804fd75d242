"""Streaming statistics against closed forms of queueing theory, and what they must not cost."""

import gc
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import Generator

from batching.clock import MILLISECOND_NS as MS
from batching.clock import SECOND_NS
from batching.core.events import InstanceJoined, InstanceLeft
from batching.core.limits import Limits
from batching.core.policy import Policy
from batching.policies.greedy import Greedy
from batching.simulation import (
    Affine,
    Arrival,
    ClosedLoop,
    Exponential,
    House,
    LeastOutstanding,
    Link,
    Observer,
    Poisson,
    Random,
    Recorded,
    Recorder,
    Requests,
    Service,
    Statistics,
    play,
    simulate,
    uniform,
)
from batching.simulation.histogram import TimeHistogram

pytestmark = pytest.mark.long


class ExponentialTimes:
    """Times that do not depend on the size."""

    def __init__(self, mean_ms: float) -> None:
        self._mean_ms = mean_ms

    def open(self, rng: Generator) -> Callable[[int], float]:
        times = Exponential(self._mean_ms / 1_000).stream_ns(rng)
        return lambda _rows: next(times)


def single() -> Policy:
    return Greedy(max_requests=1)


ROOMY = Limits(max_batch_rows=32, max_requests=100_000, max_rows=400_000)


def test_one_at_a_time_with_constant_service_waits_as_m_d_1():
    load = 0.6

    statistics = simulate(single, Poisson(100 * load), Service(Affine(10)), House(limits=ROOMY), duration_s=300)

    assert statistics.mean_queue_ms == pytest.approx(10 * load / (2 * (1 - load)), rel=0.05)  # Pollaczek-Khinchine
    assert statistics.utilisation["instance_0"] == pytest.approx(load, rel=0.02)


def test_one_at_a_time_with_random_service_is_m_m_1():
    service = Service(ExponentialTimes(10))

    statistics = simulate(single, Poisson(50), service, House(limits=ROOMY), duration_s=500, seed=2)

    stay_ms = 1_000 / (100 - 50)  # exponential
    assert statistics.latency.mean_ms == pytest.approx(stay_ms, rel=0.05)
    assert statistics.latency.p50_ms == pytest.approx(stay_ms * math.log(2), rel=0.05)
    assert statistics.latency.p90_ms == pytest.approx(stay_ms * math.log(10), rel=0.05)


def test_callers_that_think_and_one_server_are_the_machine_repair_model():
    loop = ClosedLoop(clients=5, think=Exponential(0.04))

    statistics = simulate(single, loop, Service(ExponentialTimes(10)), duration_s=150)

    ratio = 10 / 40
    weights = [math.perm(5, waiting) * ratio**waiting for waiting in range(6)]
    busy = 1 - weights[0] / sum(weights)
    assert statistics.utilisation["instance_0"] == pytest.approx(busy, rel=0.02)
    assert statistics.throughput_per_s == pytest.approx(100 * busy, rel=0.02)


def test_a_lone_caller_sends_once_in_a_round_trip():
    network = Link(send_ms=0.25, first_answer=Affine(0.5, 0.25))

    statistics = simulate(Greedy, ClosedLoop(clients=1), Service(Affine(9)), House(network=network), duration_s=20)

    assert statistics.throughput_per_s == pytest.approx(100, rel=0.001)
    assert statistics.latency.mean_ms == 10
    assert statistics.mean_queue_ms == 0


class InSystem(Observer):
    """Integrates the number of requests in the server over time."""

    def __init__(self) -> None:
        self.area = 0
        self.number = 0
        self.since_ns = 0

    def arrived(self, now_ns, replica, arrival):
        self.change(now_ns, 1)

    def answered(self, now_ns, run, entries, answers_ns):
        self.change(now_ns, -len(entries))

    def expired(self, now_ns, entry):
        self.change(now_ns, -1)

    def finished(self, now_ns, running):
        self.change(now_ns, 0)

    def change(self, now_ns: int, by: int) -> None:
        self.area += self.number * (now_ns - self.since_ns)
        self.number += by
        self.since_ns = now_ns


def test_littles_law_holds():
    in_system = InSystem()
    load = Poisson(400, Requests(rows=uniform(1, 3)))
    house, service = House(limits=ROOMY, instances=2), Service(Affine(6, 1.2), noise=0.1)

    end_ns = play(Greedy, load, service, house, observers=[in_system], duration_s=30)
    statistics = simulate(Greedy, load, service, house, duration_s=30, warm_up_s=0)

    mean_number = in_system.area / end_ns
    assert mean_number == pytest.approx(statistics.throughput_per_s * statistics.latency.mean_ms / 1_000, rel=0.01)


def example(seed: int, make_policy: Callable[[], Policy] = Greedy) -> Statistics:
    house = House(replicas=2, router=Random(), network=Link(send_ms=0.2, jitter=0.1), instances=2)
    load = Poisson(1_500, Requests(rows=uniform(1, 8), patience_ns=40 * MS))
    return simulate(make_policy, load, Service(Affine(6, 0.6), noise=0.05), house, duration_s=3, seed=seed)


def test_equal_seeds_give_equal_statistics():
    assert example(3) == example(3)
    assert example(3) != example(4)


def test_another_policy_meets_the_same_requests():
    def sent(make_policy: Callable[[], Policy]) -> list[tuple[str, int]]:
        recorder = Arrivals()
        play(make_policy, Poisson(300), Service(Affine(5), noise=0.2), House(), observers=[recorder], duration_s=2)
        return recorder.sent

    assert sent(Greedy) == sent(single)


class Arrivals(Observer):
    """Who came when."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int]] = []

    def arrived(self, now_ns: int, replica: int, arrival: Arrival) -> None:
        self.sent.append((arrival.name, now_ns))


def test_statistics_agree_with_the_full_record():
    recorder = Recorder()
    house = House(limits=Limits(max_batch_rows=8, max_requests=12), instances=2)
    load = Poisson(900, Requests(patience_ns=30 * MS, leaves_ns=25 * MS))
    service = Service(Affine(6, 1.2))

    play(Greedy, load, service, house, observers=[recorder], duration_s=3)
    statistics = simulate(Greedy, load, service, house, duration_s=3, warm_up_s=0)

    outcome = recorder.outcome()
    assert statistics.answered == statistics.in_time == len(outcome.answered)
    assert statistics.withdrawn == len(outcome.withdrawn) > 0
    assert statistics.refused == {"QueueFullError": len(outcome.refused)}
    assert statistics.batches == len(outcome.executions)
    assert statistics.rows == sum(run.rows for run in outcome.executions)
    busy_ns = sum(min(run.free_ns, 3 * SECOND_NS) - run.start_ns for run in outcome.executions)
    assert sum(statistics.utilisation.values()) == pytest.approx(busy_ns / (3 * SECOND_NS))
    assert sum(statistics.close_reasons.values()) == sum(statistics.batch_rows.values()) == statistics.batches


def test_late_answers_are_throughput_but_not_goodput():
    load = Recorded([Arrival(name, 0, patience_ns=patience) for name, patience in (("a", 9 * MS), ("b", 11 * MS))])

    statistics = simulate(Greedy, load, Service(Affine(10)), House(enforce_deadlines=False))

    assert (statistics.answered, statistics.in_time) == (2, 1)
    assert statistics.goodput_per_s == statistics.throughput_per_s / 2
    assert statistics.in_time_share == 0.5


def test_what_happens_before_the_end_of_the_warm_up_does_not_count():
    load = Recorded([Arrival("a", 0), Arrival("b", 20 * MS)])

    statistics = simulate(Greedy, load, Service(Affine(10)), duration_s=0.04, warm_up_s=0.005)

    assert statistics.window_s == 0.035
    assert (statistics.answered, statistics.batches) == (2, 1)  # a started before
    assert statistics.utilisation["instance_0"] == pytest.approx((5 + 10) / 35)


def test_an_instance_that_joins_for_a_while_is_busy_for_a_while():
    changes = ((0.1, InstanceJoined("helper")), (0.2, InstanceLeft("helper")))

    statistics = simulate(
        single, ClosedLoop(clients=4), Service(Affine(10)), House(changes=changes), duration_s=0.4, warm_up_s=0
    )

    assert statistics.utilisation == {"instance_0": 1, "helper": 0.25}


def test_replicas_are_told_apart_and_a_better_router_shortens_the_queue():
    def latency_ms(router: object) -> float:
        house = House(replicas=4, router=router, limits=ROOMY)
        statistics = simulate(single, Poisson(320), Service(Affine(10)), house, duration_s=30)
        assert list(statistics.utilisation) == [f"{number}/instance_0" for number in range(4)]
        assert sum(statistics.utilisation.values()) == pytest.approx(3.2, rel=0.03)
        return statistics.latency.mean_ms

    random_ms, least_ms = latency_ms(Random()), latency_ms(LeastOutstanding())

    assert random_ms == pytest.approx(10 + 10 * 0.8 / (2 * 0.2), rel=0.1)  # four M/D/1
    assert least_ms < 0.6 * random_ms


class Blocks(Observer):
    """How many objects the collector knows, now and then."""

    def __init__(self) -> None:
        self.answers = 0
        self.objects: list[int] = []

    def answered(self, now_ns, run, entries, answers_ns):
        before, self.answers = self.answers, self.answers + len(entries)
        if before // 5_000 != self.answers // 5_000:
            gc.collect()
            self.objects.append(len(gc.get_objects()))


@pytest.mark.parametrize(
    "load",
    [Poisson(576, Requests(patience_ns=500 * MS, leaves_ns=600 * MS)), ClosedLoop(clients=64)],
    ids=["open", "closed"],
)
def test_memory_does_not_grow_with_the_length(load):
    blocks = Blocks()

    play(Greedy, load, Service(Affine(6, 1.2)), House(), observers=[blocks], duration_s=45)

    assert len(blocks.objects) >= 5
    assert max(blocks.objects[1:]) - blocks.objects[0] < 1_500  # of 25,000 requests; chunks of drawn numbers vary


@given(st.lists(st.integers(0, 10**13), min_size=1, max_size=300), st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
def test_quantiles_are_exact_within_one_percent(times_ns, share):
    histogram = TimeHistogram()

    histogram.add(times_ns)

    exact = sorted(times_ns)[max(math.ceil(share * len(times_ns) - 1e-9), 1) - 1]
    assert histogram.quantile_ns(share) == pytest.approx(exact, rel=0.01, abs=1)
    assert histogram.largest_ns == max(times_ns)
    assert histogram.mean_ns == pytest.approx(np.mean(times_ns))


def test_a_histogram_of_nothing_has_no_quantiles():
    histogram = TimeHistogram()

    assert histogram.count == 0
    assert math.isnan(histogram.quantile_ns(0.5))
    assert math.isnan(histogram.mean_ns)
