"""What a model's recorded batches teach about its durations."""

from itertools import islice

import numpy as np
import pytest

from batching.clock import MICROSECOND_NS, MILLISECOND_NS
from loadtest.fidelity.servers import SURROUNDINGS
from loadtest.fidelity.service import RecordedModel, learn, occupancy
from loadtest.fidelity.traces import Server
from tests.fidelity.builders import recording, trace


def learned(sizes_us, words):
    """A model that ran ten batches of each size, in so much time."""
    batches = [
        (number * 100_000, number * 100_000 + lasts_us, rows)
        for number, (rows, lasts_us) in enumerate(sorted(sizes_us.items()) * 10)
    ]
    return learn(trace(recorded=recording([(0, 1, 200)], batches), words=words))


def test_recorded_sizes_keep_their_own_time_and_others_lie_between():
    model = learned({4: 10_000, 8: 12_000, 16: 40_000}, "a GPU")

    assert [model.median_us(rows) for rows in (4, 6, 8, 12, 16)] == [10_000, 11_000, 12_000, 26_000, 40_000]


def test_beyond_the_recorded_sizes_the_stated_slope_counts():
    model = learned({8: 15_650}, "sleep 6000 us + 1200 us per row, no CPU")

    assert (model.median_us(1), model.median_us(32)) == (15_650 - 7 * 1_200, 15_650 + 24 * 1_200)


def test_a_slope_may_be_stated_in_milliseconds():
    assert learned({8: 15_650}, "sleep 3 ms + 0.5 ms per row").slope_us == 500


def test_without_words_the_slope_is_that_of_the_recorded_sizes():
    model = learned({2: 4_000, 4: 6_000}, "")

    assert model.median_us(10) == pytest.approx(12_000)


def test_a_single_size_without_words_is_the_time_of_every_batch():
    assert learned({8: 9_000}, "").median_us(32) == 9_000


def test_durations_are_drawn_around_the_median_and_repeat_with_the_seed():
    model = RecordedModel([(1, 1_000.0)], 100.0, [-10.0, 0.0, 10.0])

    def draw(seed):
        draw_ns = model.open(np.random.default_rng(seed))
        return [draw_ns(rows) / MICROSECOND_NS for rows in islice((1, 3), 2) for _ in range(20)]

    assert draw(1) == draw(1) != draw(2)
    assert set(draw(1)) == {990, 1_000, 1_010, 1_190, 1_200, 1_210}


def test_hiccups_of_the_machine_are_not_drawn():
    batches = [(number * 100_000, number * 100_000 + 8_000, 1) for number in range(200)]
    batches[100] = (10_000_000, 10_050_000, 1)

    model = learn(trace(recorded=recording([(0, 1, 200)], batches)))

    assert set(model.noise_us) == {0.0}


def test_batches_that_mlserver_hands_over_wait_for_its_worker():
    around = SURROUNDINGS[Server.MLSERVER]
    model = RecordedModel([(1, 10_000.0)], 0.0, [0.0])
    occupy = occupancy(model, around, instances=1).open(np.random.default_rng(1))

    first, second = occupy(1, 0, "instance_0"), occupy(1, MILLISECOND_NS, "instance_0")

    assert first.begins_ns == pytest.approx(around.pre.base_ms * MILLISECOND_NS, rel=0.3)
    assert second.begins_ns - first.ends_ns == pytest.approx(around.post.base_ms * MILLISECOND_NS, rel=0.3)


def test_each_worker_of_mlserver_takes_the_next_batch():
    model = RecordedModel([(1, 10_000.0)], 0.0, [0.0])
    occupy = occupancy(model, SURROUNDINGS[Server.MLSERVER], instances=2).open(np.random.default_rng(1))

    first, second, third = (occupy(1, 0, "instance_0") for _ in range(3))

    assert max(first.begins_ns, second.begins_ns) < min(first.ends_ns, second.ends_ns) < third.begins_ns
