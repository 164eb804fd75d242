"""The family of a trace follows from its configuration and load."""

import pytest

from loadtest.fidelity import limits
from loadtest.fidelity.families import family
from loadtest.fidelity.limits import Measure
from loadtest.fidelity.service import learn
from loadtest.fidelity.traces import Server
from tests.fidelity.builders import steady, trace

PREFERRED = {"preferred_rows": (8, 16, 32)}
AT_ONCE = {"delay_us": 0}
TWO = {"instances": 2}


def asked(**properties):
    made = trace(**properties)
    return family(made, learn(made))


@pytest.mark.parametrize(
    ("clients", "config", "name"),
    [
        pytest.param(1, PREFERRED, "B", id="one-client"),
        pytest.param(8, PREFERRED, "B", id="one-preferred-batch"),
        pytest.param(16, PREFERRED, "B", id="two-preferred-batches"),
        pytest.param(64, PREFERRED, "B", id="two-largest-batches"),
        pytest.param(32, {}, "B", id="one-largest-batch"),
        pytest.param(100, AT_ONCE, "B", id="always-a-full-batch-waits"),
        pytest.param(8, {"batches": False}, "B", id="no-batching"),
        pytest.param(8, PREFERRED | TWO, "B", id="one-preferred-batch-two-instances"),
        pytest.param(32, PREFERRED, "C", id="between"),
        pytest.param(12, PREFERRED, "C", id="one-and-a-half-batches"),
        pytest.param(8, AT_ONCE, "C", id="eager-few"),
        pytest.param(32, AT_ONCE, "C", id="eager-one-batch"),
        pytest.param(8, PREFERRED | AT_ONCE, "C", id="eager-preferred"),
        pytest.param(64, PREFERRED | AT_ONCE, "C", id="eager-preferred-two-batches"),
        pytest.param(16, PREFERRED | TWO, "C", id="two-instances"),
        pytest.param(64, PREFERRED | TWO, "C", id="two-instances-many-clients"),
        pytest.param(100, PREFERRED, "D", id="three-batches"),
        pytest.param(100, {}, "D", id="three-largest-batches"),
        pytest.param(100, PREFERRED | AT_ONCE, "D", id="eager-preferred-three-batches"),
        pytest.param(100, PREFERRED | TWO, "D", id="two-instances-three-batches"),
        pytest.param(32, PREFERRED | {"queue_limit_requests": 32}, "D", id="late-binding"),
        pytest.param(64, PREFERRED | {"queue_limit_requests": 32}, "E", id="limit-race"),
        pytest.param(100, PREFERRED | {"queue_limit_requests": 32}, "E", id="limit"),
        pytest.param(32, PREFERRED | {"timeout_us": 30_000}, "E", id="timeout"),
    ],
)
def test_a_closed_loop_of_triton_is_asked_by_its_number_of_cycles(clients, config, name):
    assert asked(clients=clients, **config).name == name


@pytest.mark.parametrize(
    ("every_us", "config", "name"),
    [
        pytest.param(20_000, {}, "A", id="a-fourteenth-of-capacity"),
        pytest.param(2_500, {}, "A2", id="more-than-half"),
        pytest.param(2_500, {"instances": 2}, "A", id="two-instances-share-it"),
        pytest.param(20_000, {"batches": False}, "A2", id="alone-they-fill-a-third"),
        pytest.param(20_000, {"timeout_us": 30_000}, "E", id="some-are-refused"),
    ],
)
def test_an_open_loop_of_triton_is_asked_by_its_utilisation(every_us, config, name):
    recorded = steady(30, 1, every_us, 7_200)

    assert asked(recorded=recorded, **config).name == name


@pytest.mark.parametrize(
    ("server", "clients", "expected"),
    [
        pytest.param(Server.TORCHSERVE, None, limits.F_OPEN, id="torchserve-open"),
        pytest.param(Server.TORCHSERVE, 16, limits.F, id="torchserve-all-are-back"),
        pytest.param(Server.TORCHSERVE, 48, limits.F_DRIFTING, id="torchserve-some-miss-the-window"),
        pytest.param(Server.LITSERVE, None, limits.G_OPEN, id="litserve-open"),
        pytest.param(Server.LITSERVE, 8, limits.G, id="litserve-all-are-back"),
        pytest.param(Server.LITSERVE, 32, limits.G2, id="litserve-some-miss-the-window"),
        pytest.param(Server.LITSERVE, 64, limits.G, id="litserve-always-full"),
        pytest.param(Server.MOSEC, 32, limits.G, id="mosec-answers-faster"),
        pytest.param(Server.MOSEC, 100, limits.G, id="mosec-always-full"),
        pytest.param(Server.MLSERVER, 32, limits.G_SLOW_ANSWERS, id="mlserver-one-batch"),
        pytest.param(Server.MLSERVER, 64, limits.G_SLOW_ANSWERS, id="mlserver-two-batches"),
        pytest.param(Server.MLSERVER, 100, limits.G2, id="mlserver-a-rest-drifts"),
        pytest.param(Server.BENTOML, 8, limits.H, id="bentoml"),
        pytest.param(Server.RAYSERVE, 8, limits.H, id="rayserve"),
    ],
)
def test_other_servers_are_asked_by_whether_their_windows_settle(server, clients, expected):
    assert asked(server=server, clients=clients) == expected


def test_workers_that_take_requests_from_each_other_do_not_settle():
    assert asked(server=Server.MOSEC, clients=32, instances=2) == limits.G2


def test_half_a_batch_more_makes_the_median_latency_undetermined():
    split = asked(server=Server.TORCHSERVE, clients=100, max_batch_rows=8)
    whole = asked(server=Server.TORCHSERVE, clients=96, max_batch_rows=8)

    assert (split, whole) == (limits.F.with_mean_latency(), limits.F)
    assert Measure.P50 not in {limit.measure for limit in split.typical}


def test_only_bentoml_and_ray_never_decide():
    undecided = {server for server in Server if not asked(server=server, clients=8).decides}

    assert undecided == {Server.BENTOML, Server.RAYSERVE}


def test_two_instances_may_be_slower():
    assert asked(clients=8, **PREFERRED, **TWO) == limits.B_MANY_INSTANCES
