"""Which policy a model gets, and what it is told."""

import asyncio
from dataclasses import replace

import pytest

from batching.core.errors import DeadlineExceededError, QueueFullError
from batching.profiles import PROFILES
from gateway.policies import PriorityLevels, create_limits, create_scheduler
from models.errors import ConfigError
from models.spec import BatchingSpec
from tests.gateway.serving import Gate, echo, one_turn, rows, serving, values

NEEDED: dict[str, dict[str, object]] = {
    "fixed": {"batch_rows": 1},
    "nexus": {"profile_us": {1: 1000}},
    "symphony": {"profile_us": {1: 1000}, "slo_us": 2000},
    "shepherd": {"profile_us": {1: 1000}},
}


@pytest.mark.parametrize("policy", sorted(PROFILES))
async def test_every_policy_answers(policy: str) -> None:
    async with serving(echo(policy=policy, parameters=NEEDED.get(policy, {}))) as service:
        assert values(await service.infer(rows(7))) == [7]


def test_an_unknown_policy_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r'batching\.policy: found "magic", expected one of bentoml, fixed, greedy'):
        create_scheduler(echo(policy="magic"))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        pytest.param({"batch_siz": 4}, "found an unknown parameter, expected batch_size, client", id="unknown"),
        pytest.param({"batch_size": "many"}, 'batch_size: found "many", expected a valid', id="type"),
        pytest.param({"batch_size": 0}, "batch_size: found 0, expected that it must be at least 1", id="value"),
        pytest.param({"batch_size": 10**32}, "batch_size: found 1000", id="absurd"),
        pytest.param(
            {"max_batch_delay_ms": float("inf")}, "max_batch_delay_ms: found inf, expected fin", id="infinite"
        ),
        pytest.param({"batch_size": True}, "batch_size: found true, expected a valid", id="truth"),
        pytest.param({"a.b": 1}, "parameters.a.b: found an unknown parameter", id="dot"),
        pytest.param({"a\nb": 1}, r"parameters.a\\nb: found an unknown parameter", id="line-break"),
    ],
)
def test_an_impossible_parameter_is_refused_with_its_line(parameters: dict[str, object], words: str) -> None:
    lines = dict.fromkeys(parameters, 7)

    with pytest.raises(ConfigError, match=words) as caught:
        create_scheduler(echo(policy="torchserve", parameters=parameters, parameter_lines=lines))

    assert (caught.value.source, caught.value.line) == ("echo/shoal.toml", 7)


@pytest.mark.parametrize(
    ("parameters", "field", "words"),
    [
        pytest.param({"default_queue_policy": {"x": 2}}, "default_queue_policy.x", "an unknown key", id="nested-key"),
        pytest.param({"preserve_ordering": "off"}, "preserve_ordering", '"off"', id="text-for-truth"),
        pytest.param({"priority_levels": "3"}, "priority_levels", '"3"', id="text-for-number"),
        pytest.param({"preferred_batch_size": [16]}, "preferred_batch_size", "do not fit", id="above-the-cap"),
    ],
)
def test_what_triton_cannot_mean_is_refused(parameters: dict[str, object], field: str, words: str) -> None:
    lines = dict.fromkeys(parameters, 3)

    with pytest.raises(ConfigError, match=words) as caught:
        create_scheduler(echo(policy="triton", parameters=parameters, parameter_lines=lines))

    assert (caught.value.field, caught.value.line) == (f"batching.parameters.{field}", 3)


def test_a_mistake_of_the_config_is_told_as_one() -> None:
    with pytest.raises(ConfigError, match=r"config\.pbtxt: dynamic_batching\.preferred_batch_size: found"):
        create_scheduler(echo(policy="triton", parameters={"preferred_batch_size": (16,)}))


def test_the_queue_holds_at_least_one_batch() -> None:
    assert create_limits(echo(max_batch_rows=5_000)).max_rows == 5_000


def test_sizes_to_pad_to_belong_to_the_model() -> None:
    spec = echo(policy="tfserving", parameters={"allowed_batch_sizes": (2, 4)})

    with pytest.raises(ConfigError, match=r"expected them as \[batching\] allowed_batch_sizes"):
        create_scheduler(spec)


def test_a_parameter_without_default_must_be_given() -> None:
    spec = echo(policy="fixed", parameter_lines={"": 4})

    with pytest.raises(ConfigError, match="batch_rows: found nothing, expected a value") as caught:
        create_scheduler(spec)

    assert caught.value.line == 4  # where the policy is named


def test_the_limits_are_those_of_the_configuration() -> None:
    spec = replace(echo(max_batch_rows=8), batching=BatchingSpec(max_queue_requests=3, max_queue_rows=9))

    limits = create_limits(spec)

    assert (limits.max_batch_rows, limits.max_requests, limits.max_rows) == (8, 3, 9)


@pytest.mark.parametrize(("requested", "level"), [(0, 2), (1, 1), (3, 3), (4, 2)])
def test_a_request_without_a_possible_level_gets_the_default_one(requested: int, level: int) -> None:
    spec = echo(policy="triton", parameters={"priority_levels": 3, "default_priority_level": 2})

    assert PriorityLevels(spec).of(requested) == level


def test_without_levels_all_are_equal() -> None:
    assert PriorityLevels(echo()).of(5) == 0


async def test_urgent_requests_overtake() -> None:
    gate = Gate()
    levels: dict[str, object] = {"priority_levels": 2, "default_priority_level": 2}
    spec = echo(max_batch_rows=1, policy="triton", parameters=levels)
    order: list[float] = []

    async with serving(spec, gate=gate) as service, asyncio.TaskGroup() as tasks:

        async def call(value: float, priority: int) -> None:
            order.extend(values(await service.infer(rows(value)._replace(priority=priority))))

        for value, priority in ((1, 0), (2, 0), (3, 1)):
            tasks.create_task(call(value, priority))
            await one_turn()
        gate.open()

    assert order == [1, 3, 2]


async def test_the_queue_policy_of_the_config_limits_the_queue() -> None:
    gate = Gate()
    spec = echo(max_batch_rows=1, policy="triton", parameters={"default_queue_policy": {"max_queue_size": 1}})

    async with serving(spec, gate=gate) as service, asyncio.TaskGroup() as tasks:
        for value in (1, 2):
            tasks.create_task(service.infer(rows(value)))
            await one_turn()
        with pytest.raises(QueueFullError, match="Exceeds maximum queue size"):
            await service.infer(rows(3))
        gate.open()


async def test_a_queue_timeout_is_kept_on_time_unless_faithful() -> None:
    gate = Gate()
    policy = {"default_timeout_microseconds": 1000}
    spec = echo(max_batch_rows=1, policy="triton", parameters={"default_queue_policy": policy})

    async with serving(spec, gate=gate) as service, asyncio.TaskGroup() as tasks:
        tasks.create_task(service.infer(rows(1)))
        await one_turn()
        with pytest.raises(DeadlineExceededError):  # although the instance is busy until the gate opens
            await service.infer(rows(2))
        gate.open()


async def test_what_the_policy_drops_after_its_admission_counts_as_failed() -> None:
    gate = Gate()
    parameters: dict[str, object] = {"max_batch_size": 1, "max_enqueued_batches": 1}
    spec = echo(max_batch_rows=1, policy="tfserving", parameters=parameters, faithful=True)

    async with serving(spec, gate=gate) as service, asyncio.TaskGroup() as tasks:
        for value in (1, 2):
            tasks.create_task(service.infer(rows(value)))
            await one_turn()
        with pytest.raises(QueueFullError):
            await service.infer(rows(3))
        gate.open()
    (counters,) = service.statistics()

    assert (counters.drop_reasons, counters.failures["REJECTED"]) == ({"queue_full": 1}, 1)


@pytest.mark.parametrize("never", [False, -1, 0])
def test_litserve_knows_several_ways_to_say_never(never: object) -> None:
    create_scheduler(echo(policy="litserve", parameters={"timeout": never}))


async def test_requests_are_cut_for_policies_that_do_so() -> None:
    gate = Gate()
    bento: dict[str, object] = {"max_batch_size": 4, "trained": (0.001, 0.001, 0.0)}
    spec = echo(max_batch_rows=4, policy="bentoml", parameters=bento)

    async with serving(spec, gate=gate) as service, asyncio.TaskGroup() as tasks:
        calls = []
        for sent in ((0.0,), (1.0, 2.0, 3.0), (4.0, 5.0, 6.0)):
            calls.append(tasks.create_task(service.infer(rows(*sent))))
            await one_turn()
        gate.open()

    assert [values(call.result()) for call in calls] == [[0], [1, 2, 3], [4, 5, 6]]
