"""The product's policies, configured as the recorded servers were."""

from collections.abc import Callable

import numpy as np

from batching.core.policy import Policy
from batching.policies.bentoml import BentoML, BentoMLSettings
from batching.policies.greedy import Greedy
from batching.policies.litserve import LitServe, LitServeSettings
from batching.policies.mlserver import MLServer, MLServerSettings
from batching.policies.mosec import Mosec, MosecSettings
from batching.policies.rayserve import RayServe, RayServeSettings
from batching.policies.torchserve import TorchServe, TorchServeSettings
from batching.policies.triton import QueuePolicy, TritonExperiments, TritonLatencies, TritonSettings, create_triton
from batching.simulation.draws import factors
from loadtest.fidelity.clients import Traffic
from loadtest.fidelity.ensembles import Variation
from loadtest.fidelity.traces import BatchingConfig, Server, Trace

MakePolicy = Callable[[], Policy]
AS_TRITON_DOES = TritonExperiments()

_TORCHSERVE_QUEUE = 100  # its default
_LITSERVE_GET_US = 50
_LITSERVE_ANSWER_US = 50
_MILLISECOND_US = 1_000
_SECOND_US = 1_000_000


def policy_of(trace: Trace, variation: Variation, traffic: Traffic, experiments: TritonExperiments) -> MakePolicy:
    """The policy of a server, as it was configured.

    Args:
        trace: Server and configuration.
        variation: Latencies inside the policy, and the seed of their jitter.
        traffic: What those latencies depend on (Triton only).
        experiments: Rules to break (Triton only).
    """
    config, slack_us = trace.config, variation.around.timer_slack_us
    match trace.server:
        case Server.TRITON:
            return lambda: _triton(config, variation, traffic, experiments)
        case Server.TORCHSERVE:
            return lambda: _torchserve(config, slack_us)
        case Server.MOSEC:
            return lambda: _mosec(config, slack_us)
        case _:
            return lambda: _without_latencies(trace.server, config)


def _triton(config: BatchingConfig, variation: Variation, traffic: Traffic, experiments: TritonExperiments) -> Policy:
    if not config.batches:
        return Greedy(max_requests=1)
    around = variation.around
    latencies = TritonLatencies(
        reaction_us=around.reaction_us,
        handoff_us=around.handoff_us,
        timer_slack_us=around.timer_slack_us,
        jitter=_hurried(variation, traffic),
    )
    late = QueuePolicy(
        timeout_action="DELAY" if config.delays_late else "REJECT",
        default_timeout_microseconds=config.timeout_us,
        max_queue_size=config.queue_limit_requests,
    )
    settings = TritonSettings(
        preferred_batch_size=config.preferred_rows,
        max_queue_delay_microseconds=config.delay_us,
        preserve_ordering=config.preserve_ordering,
        priority_levels=config.priority_levels,
        default_priority_level=(config.priority_levels + 1) // 2,
        default_queue_policy=late,
    )
    return create_triton(settings, config.max_batch_rows, latencies=latencies, experiments=experiments)


def _hurried(variation: Variation, traffic: Traffic) -> Callable[[int], int]:
    """The latency of a thread of Triton this time: longer while the cores are busy with a burst of requests."""
    around = variation.around
    noise = factors(np.random.default_rng(variation.seed), around.jitter)
    slower = (around.burst_us + around.handoff_us) / (around.reaction_us + around.handoff_us)
    return lambda latency_ns: int(latency_ns * next(noise) * (slower if traffic.is_burst else 1.0))


def _torchserve(config: BatchingConfig, slack_us: int) -> Policy:
    settings = TorchServeSettings(
        batch_size=config.max_batch_rows,
        max_batch_delay_ms=config.delay_us // _MILLISECOND_US,
        job_queue_size=config.queue_limit_requests or _TORCHSERVE_QUEUE,
        timer_slack_us=slack_us,
    )
    return TorchServe(settings)


def _mosec(config: BatchingConfig, slack_us: int) -> Policy:
    settings = MosecSettings(
        max_batch_size=config.max_batch_rows,
        max_wait_time=config.delay_us // _MILLISECOND_US,
        timer_slack_us=slack_us,
    )
    return Mosec(settings)


def _litserve(size: int, delay_s: float) -> Policy:
    settings = LitServeSettings(
        max_batch_size=size, batch_timeout=delay_s, get_us=_LITSERVE_GET_US, answer_us=_LITSERVE_ANSWER_US
    )
    return LitServe(settings)


def _without_latencies(server: Server, config: BatchingConfig) -> Policy:
    size, delay_s = config.max_batch_rows, config.delay_us / _SECOND_US
    match server:
        case Server.LITSERVE:
            return _litserve(size, delay_s)
        case Server.MLSERVER:
            return MLServer(MLServerSettings(max_batch_size=size, max_batch_time=delay_s))
        case Server.RAYSERVE:
            return RayServe(RayServeSettings(max_batch_size=size, batch_wait_timeout_s=delay_s, blocking=True))
        case _:
            return BentoML(BentoMLSettings(max_batch_size=size))
