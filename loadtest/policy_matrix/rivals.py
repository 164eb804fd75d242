"""Who `shoal` is compared with: the batchers of other servers in usual settings, and two of research.

Settings that do not matter here (limits of queues, polling) are set so that they do no harm. What a setting costs in
the real server beyond its rule (late timers, hand-overs) is left out, so every rival is a little better than it is.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from batching.clock import MICROSECOND_NS, MILLISECOND_NS
from batching.core.policy import Policy
from batching.policies.bentoml import BentoML, BentoMLSettings
from batching.policies.greedy import Greedy
from batching.policies.nexus import Nexus, NexusSettings
from batching.policies.rayserve import RayServe, RayServeSettings
from batching.policies.shoal import Shoal, ShoalSettings
from batching.policies.symphony import Symphony, SymphonySettings
from batching.policies.tfserving import TFServing, TFServingSettings
from batching.policies.torchserve import TorchServe, TorchServeSettings
from batching.policies.triton import QueuePolicy, TritonExperiments, TritonSettings, create_triton
from loadtest.policy_matrix.scenarios import Scenario

Lateness = Literal["unaware", "expiry", "half", "told", "research"]
"""What becomes of late requests: they are served nevertheless; they end at their deadline; the server's own timeout in
the queue is half of the shortest deadline; the server was told the shortest deadline; research, with true profiles."""

_LIMITLESS = 1_000_000
_LATE = TritonExperiments(bind="late")


@dataclass(frozen=True, slots=True)
class Rival:
    """A policy in one setting.

    Attributes:
        name: Unique.
        make: A fresh policy for a scenario.
        lateness: See there. "unaware" is also what plays where there are no deadlines.
        is_default: These are its server's settings as shipped.
    """

    name: str
    make: Callable[[Scenario], Policy]
    lateness: Lateness = "unaware"
    is_default: bool = False


def ours(*, knows_times: bool) -> Rival:
    """`shoal`, with the times of its model from a warm-up or without."""
    if knows_times:
        return Rival("shoal", lambda scenario: Shoal(ShoalSettings(warm_up_us=scenario.served.profile_us())), "expiry")
    return Rival("shoal, cold", lambda _: Shoal(), "expiry")


def rivals(*, has_deadlines: bool) -> list[Rival]:
    """All that play in scenarios of this sort."""
    unaware = list(_unaware())
    if not has_deadlines:
        return unaware
    shipped = [rival for rival in unaware if rival.is_default or rival.name in _UNAWARE]
    expiring = [replace(rival, name=f"{rival.name}, expiry", lateness="expiry") for rival in unaware
                if rival.name in _EXPIRING]  # fmt: skip
    return [*shipped, *expiring, *_half(), Rival("bentoml, told", _told, "told"), *_research()]


# Not all settings play in every version: those left out are far behind the others of their sort.
_UNAWARE = (
    "greedy", "triton 1 ms x 8", "triton 5 ms x 32", "torchserve 5 ms x 8", "bentoml 20 ms", "bentoml 50 ms",
    "bentoml 100 ms", "bentoml 200 ms",
)  # fmt: skip
_EXPIRING = (
    "greedy", "triton 8,16,32", "triton 8,16,32 5 ms", "triton 1 ms x 8", "triton 5 ms x 32", "tfserving 5 ms x 32",
    "torchserve 5 ms x 8", "torchserve 20 ms x 8", "torchserve 5 ms x 32", "rayserve",
)  # fmt: skip


def _unaware() -> Iterator[Rival]:
    yield Rival("one at a time", lambda _: Greedy(max_requests=1), is_default=True)
    yield Rival("greedy", lambda _: Greedy())
    yield _triton("triton", is_default=True)
    yield _triton("triton 8,16,32", preferred=(8, 16, 32))
    yield _triton("triton 8,16,32 5 ms", preferred=(8, 16, 32), delay_ms=5)
    for rows in (8, 32):
        for delay_ms in (1, 5, 20):
            yield _triton(f"triton {delay_ms} ms x {rows}", preferred=(rows,), delay_ms=delay_ms, experiments=_LATE)
    yield _tfserving("tfserving", 0, 1000, is_default=True)
    yield _tfserving("tfserving 5 ms x 32", 5, 32)
    yield _torchserve("torchserve", 100, 1, is_default=True)
    for rows in (8, 32):
        for delay_ms in (5, 20, 100):
            yield _torchserve(f"torchserve {delay_ms} ms x {rows}", delay_ms, rows)
    for most_ms in (20, 50, 100, 200):
        yield _bentoml(f"bentoml {most_ms} ms", most_ms)
    yield _bentoml("bentoml", 60_000, is_default=True)
    yield Rival("rayserve", _rayserve, is_default=True)


def _half() -> Iterator[Rival]:
    yield _triton("triton, half", lateness="half")
    yield _triton("triton 8,16,32 5 ms, half", preferred=(8, 16, 32), delay_ms=5, lateness="half")
    for delay_ms, rows in ((1, 8), (5, 8), (20, 8), (1, 32)):
        name = f"triton {delay_ms} ms x {rows}, half"
        yield _triton(name, preferred=(rows,), delay_ms=delay_ms, experiments=_LATE, lateness="half")
    for delay_ms, rows in ((5, 8), (20, 8), (5, 32)):
        yield _torchserve(f"torchserve {delay_ms} ms x {rows}, half", delay_ms, rows, lateness="half")


def _triton(
    name: str,
    *,
    preferred: Sequence[int] = (),
    delay_ms: int = 0,
    experiments: TritonExperiments | None = None,
    lateness: Lateness = "unaware",
    is_default: bool = False,
) -> Rival:
    def make(scenario: Scenario) -> Policy:
        largest = scenario.served.largest_rows
        half_us = _slo_us(scenario) // 2 if lateness == "half" else 0
        settings = TritonSettings(
            preferred_batch_size=tuple(size for size in preferred if size <= largest),
            max_queue_delay_microseconds=delay_ms * 1000,
            default_queue_policy=QueuePolicy(default_timeout_microseconds=half_us),
        )
        return create_triton(settings, largest, experiments=experiments)

    return Rival(name, make, lateness, is_default)


def _tfserving(name: str, delay_ms: int, rows: int, *, is_default: bool = False) -> Rival:
    settings = TFServingSettings(
        max_batch_size=rows, batch_timeout_micros=delay_ms * 1000, max_enqueued_batches=_LIMITLESS
    )
    return Rival(name, lambda _: TFServing(settings), is_default=is_default)


def _torchserve(
    name: str, delay_ms: int, rows: int, *, lateness: Lateness = "unaware", is_default: bool = False
) -> Rival:
    settings = TorchServeSettings(batch_size=rows, max_batch_delay_ms=delay_ms, job_queue_size=_LIMITLESS)

    def make(scenario: Scenario) -> Policy:
        if lateness != "half":
            return TorchServe(settings)
        return TorchServe(replace(settings, client_timeout_in_mills=max(_slo_us(scenario) // 2000, 1)))

    return Rival(name, make, lateness, is_default)


def _bentoml(name: str, most_ms: int, *, is_default: bool = False) -> Rival:
    settings = BentoMLSettings(max_latency_ms=most_ms)
    return Rival(name, lambda _: BentoML(settings), is_default=is_default)


def _told(scenario: Scenario) -> Policy:
    return BentoML(BentoMLSettings(max_latency_ms=max(_slo_us(scenario) * MICROSECOND_NS // MILLISECOND_NS, 1)))


def _rayserve(scenario: Scenario) -> Policy:
    return RayServe(RayServeSettings(max_concurrent_batches=scenario.instances))


def _research() -> Iterator[Rival]:
    yield Rival("nexus", _nexus("window"), "research")
    yield Rival("nexus, earliest", _nexus("earliest"), "research")
    yield Rival("symphony", _symphony, "research")


def _nexus(drop: Literal["window", "earliest"]) -> Callable[[Scenario], Policy]:
    def make(scenario: Scenario) -> Policy:
        profile_us = scenario.served.profile_us()
        settings = NexusSettings(profile_us=profile_us, slo_us=_slo_us(scenario), drop=drop)
        return Nexus(settings, scenario.served.largest_rows)

    return make


def _symphony(scenario: Scenario) -> Policy:
    settings = SymphonySettings(profile_us=scenario.served.profile_us(), slo_us=_slo_us(scenario))
    return Symphony(settings, scenario.served.largest_rows)


def _slo_us(scenario: Scenario) -> int:
    return (scenario.slo_ns or 0) // MICROSECOND_NS
