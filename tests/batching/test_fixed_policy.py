"""The static batcher."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batching.policies.fixed import Fixed, FixedSettings
from batching.simulation import Arrival, Outcome
from tests.batching.builders import arrivals, simulate, starts

BIG = 64  # rows


def run(load: str, *, instances: int = 1, rows: int = BIG, **changes: object) -> Outcome:
    settings = FixedSettings(**{"batch_rows": 4, **changes})
    return simulate(Fixed(settings), arrivals(load), max_batch_rows=rows, instances=instances)


@pytest.mark.parametrize(
    ("changes", "load", "expected"),
    [
        pytest.param({}, "a@0 b@100 c@200 d@300", "300:abcd", id="it-waits-for-its-rows"),
        pytest.param({}, "a@0 b@100 c@200 d@300 e@400", "300:abcd", id="the-tail-waits-for-ever"),
        pytest.param({"timeout_us": 2000}, "a@0 b@100 c@200 d@300 e@400", "300:abcd 2400:e", id="or-for-its-timeout"),
        pytest.param({"timeout_us": 0}, "a@0 b@100 c@200", "0:a 1000:bc", id="without-patience-it-is-greedy"),
        pytest.param({"timeout_us": 500}, "a@0 b@100 c@600", "500:ab 1500:c", id="overdue-when-the-instance-is-free"),
        pytest.param({}, "a@0x3 b@100x2 c@200x2", "100:a 1100:bc", id="the-next-does-not-fit"),
        pytest.param({}, "a@0#p b@100#q c@200x3#q", "100:a 1100:bc", id="the-next-has-another-shape"),
        pytest.param({}, "a@0x6 b@100x4", "0:a 1000:b", id="a-larger-request-runs-alone"),
        pytest.param({"rows": 2}, "a@0 b@100", "100:ab", id="the-largest-batch-is-the-limit"),
        pytest.param({"instances": 2}, "a@0x4 b@100x4", "0:a 100:b", id="on-every-instance"),
    ],
)
def test_batches_have_the_fixed_size(changes, load, expected):
    outcome = run(load, **changes)

    assert starts(outcome) == expected


@given(st.lists(st.integers(1, 20_000_000), max_size=40), st.integers(1, 8), st.integers(1, 3))
def test_without_timeout_every_batch_has_exactly_so_many_rows(moments, batch_rows, instances):
    load = [Arrival(name=f"r{number}", at_ns=at_ns) for number, at_ns in enumerate(sorted(moments))]
    policy = Fixed(FixedSettings(batch_rows=batch_rows))

    outcome = simulate(policy, load, max_batch_rows=BIG, instances=instances)

    assert [execution.rows for execution in outcome.executions] == [batch_rows] * (len(load) // batch_rows)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param({"batch_rows": 0}, "batch_rows must be at least 1, found 0", id="no-batch"),
        pytest.param({"batch_rows": 1, "timeout_us": -1}, "timeout_us must not be negative", id="negative-timeout"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, words):
    with pytest.raises(ValueError, match=words):
        FixedSettings(**settings)
