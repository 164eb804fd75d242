"""Ray Serve's `@serve.batch` against worked examples (largest batch 4, window 10 ms, service time 5 ms)."""

import pytest

from batching.core.commands import Refuse, Start
from batching.core.errors import TooManyRowsError
from batching.core.events import Arrived, InstanceJoined, Reconfigured
from batching.policies.greedy import Greedy
from batching.policies.rayserve import RayServe, RayServeSettings
from tests.batching.builders import arrivals, scheduler, simulate, starts
from tests.batching.formed import formed


def rayserve(**settings) -> RayServe:
    return RayServe(RayServeSettings(**{"max_batch_size": 4, **settings}))


@pytest.mark.parametrize(
    ("settings", "service_us", "load", "expected"),
    [
        pytest.param({}, 5000, "a@0", "10000:a", id="RS1-a-lone-request-waits-the-window"),
        pytest.param({}, 5000, "a@0 b@1000 c@2000 d@3000", "3000:abcd", id="RS2"),
        pytest.param({}, 5000, "a@0 b@9000 c@11000", "10000:ab 21000:c", id="RS3-window-from-the-first"),
        pytest.param(
            {}, 50_000, "a@0 b@11000 c@22000 d@33000 e@44000", "10000:a 60000:b 110000:c 160000:d 210000:e",
            id="RS4-small-batches-pile-up",
        ),
        pytest.param(
            {"batch_wait_timeout_s": 0}, 5000, "a@0 b@1000 c@2000 d@3000", "0:a 5000:b 10000:c 15000:d",
            id="RS5-no-window-no-batching",
        ),
        pytest.param(
            {"batch_wait_timeout_s": 0}, 5000, "a@0 b@0 c@0 d@0 e@0", "0:abcd 5000:e", id="RS6-but-at-one-instant"
        ),
        pytest.param({}, 5000, "a@0x3 b@100x3 c@200x3 d@300x3", "300:abcd", id="requests-count-whatever-their-rows"),
        pytest.param({}, 5000, "a@0#p b@100#q", "100:a 10100:b", id="another-shape-closes-the-batch"),
        pytest.param({}, 5000, "a@0 b@10000 c@10001", "10000:ab 20001:c", id="the-end-of-the-window-belongs-to-it"),
    ],
)  # fmt: skip
def test_batches_are_those_of_the_worked_example(settings, service_us, load, expected):
    outcome = simulate(rayserve(**settings), arrivals(load), max_batch_rows=16, service_us=service_us)

    assert starts(outcome) == expected


@pytest.mark.parametrize(
    ("batches", "instances", "load", "expected", "expected_formed"),
    [
        pytest.param(
            1, 1, "a@0 b@11000 c@22000 d@33000 e@44000", "10000:a 60000:b 110000:c 160000:d 210000:e",
            "10000:a 21000:b 32000:c 43000:d 54000:e", id="RS4",
        ),
        pytest.param(2, 2, "a@0 b@11000 c@22000", "10000:a 21000:b 60000:c", "10000:a 21000:b 32000:c", id="RS7"),
        pytest.param(1, 2, "a@0 b@11000", "10000:a 21000:b", "10000:a 21000:b", id="each-instance-is-a-replica"),
        pytest.param(2, 1, "a@0 b@11000", "10000:a 60000:b", "10000:a 21000:b", id="the-instances-limit"),
    ],
)  # fmt: skip
def test_batches_are_formed_whether_or_not_one_may_start(batches, instances, load, expected, expected_formed):
    policy = rayserve(max_concurrent_batches=batches)

    outcome = simulate(policy, arrivals(load), max_batch_rows=4, service_us=50_000, instances=instances)

    assert starts(outcome) == expected
    assert formed(outcome) == expected_formed


@pytest.mark.parametrize(
    ("load", "expected", "expected_formed"),
    [
        pytest.param("a@0x3 b@100x2 c@200x1", "100:a 10100:bc", "100:a 10100:bc", id="RS8"),
        pytest.param("a@0x3 b@0x2 c@0x1 d@0x1", "0:a 5000:cdb", "0:a 0:cdb", id="RS9-who-does-not-fit-is-overtaken"),
    ],
)
def test_with_sizes_in_rows_who_does_not_fit_goes_to_the_back(load, expected, expected_formed):
    outcome = simulate(rayserve(batch_size_fn_rows=True), arrivals(load), max_batch_rows=8, service_us=5000)

    assert starts(outcome) == expected
    assert formed(outcome) == expected_formed


def test_the_instances_cap_in_rows_closes_a_batch_in_order():
    outcome = simulate(rayserve(), arrivals("a@0x3 b@100x2 c@100x1"), max_batch_rows=4, service_us=5000)

    assert starts(outcome) == "100:a 10100:bc"


def test_with_sizes_in_rows_a_request_above_the_largest_batch_is_refused():
    outcome = simulate(rayserve(batch_size_fn_rows=True), arrivals("a@0x5 b@0x4"), max_batch_rows=8, service_us=5000)

    assert starts(outcome) == "0:b"
    assert [(name, type(error)) for name, error in outcome.refused] == [("a", TooManyRowsError)]


def test_who_is_too_large_for_a_policy_that_takes_over_is_refused_and_the_others_go_on():
    core = scheduler(Greedy(), 8)
    tickets = [core.reserve(rows, 0) for rows in (1, 6, 3)]
    core.handle([Arrived(ticket) for ticket in tickets], 0)

    commands = core.handle([Reconfigured(rayserve(batch_size_fn_rows=True)), InstanceJoined("i")], 10)

    refused = [command.ticket for command in commands if isinstance(command, Refuse)]
    started = [command.tickets for command in commands if isinstance(command, Start)]
    assert (refused, started) == ([tickets[1]], [(tickets[0], tickets[2])])


@pytest.mark.parametrize(
    ("load", "expected", "expected_formed"),
    [
        pytest.param(
            "a@0 b@11000 c@22000", "10000:a 70000:bc", "10000:a 70000:bc", id="nothing-is-collected-while-a-batch-runs"
        ),
        pytest.param(
            "a@0 b@0 c@0 d@0 e@0 f@1000", "0:abcd 50000:e 110000:f", "0:abcd 50000:e 110000:f",
            id="a-window-that-ended-meanwhile-closes-as-it-was",
        ),
        pytest.param(
            "a@0 b@0 c@0 d@0 e@0 f@0 g@0 h@0 i@0 j@1000", "0:abcd 50000:efgh 100000:i 160000:j",
            "0:abcd 0:efgh 100000:i 160000:j",
            id="a-formed-batch-comes-before-the-one-that-was-being-formed",
        ),
        pytest.param("a@0 b@45000 c@54000", "10000:a 70000:bc", "10000:a 70000:bc", id="the-window-begins-afterwards"),
    ],
)  # fmt: skip
def test_a_function_that_blocks_the_event_loop_stops_the_forming(load, expected, expected_formed):
    policy = rayserve(blocking=True, max_concurrent_batches=2)

    outcome = simulate(policy, arrivals(load), max_batch_rows=4, service_us=50_000, instances=2)

    assert starts(outcome) == expected
    assert formed(outcome) == expected_formed


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param({"max_batch_size": 0}, "max_batch_size must be at least 1, found 0", id="size"),
        pytest.param({"max_concurrent_batches": 0}, "max_concurrent_batches must be at least 1", id="concurrency"),
        pytest.param({"batch_wait_timeout_s": -0.1}, "batch_wait_timeout_s must not be negative", id="negative"),
        pytest.param({"batch_wait_timeout_s": float("nan")}, "batch_wait_timeout_s", id="nan"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, words):
    with pytest.raises(ValueError, match=words):
        RayServeSettings(**settings)


def test_the_defaults_are_those_of_the_decorator():
    settings = RayServeSettings()

    assert (settings.max_batch_size, settings.batch_wait_timeout_s, settings.max_concurrent_batches) == (10, 0.01, 1)
