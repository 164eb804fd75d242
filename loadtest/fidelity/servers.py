"""What surrounds the policy in each real server: latencies, measured once on quiet runs and never tuned by case.

Each request: sent by the client -> (send) in the queue -> taken by an instance -> (pre) model -> the first answer of
the batch reaches the client (first_answer), the others follow (answer_gap) -> (post) the instance is free again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from batching.simulation import Affine
from loadtest.fidelity.traces import Server


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Latencies around a policy.

    Attributes:
        send_ms: Client sends -> the request is in the queue.
        pre: Instance takes the batch -> model starts.
        post: Model ends -> instance is free.
        first_answer: Model ends -> first answer is at the client.
        answer_gap_ms: Between further answers of a batch, as the server sends them.
        accept_ms: What a request costs the process that sends the answers; in a closed loop one follows each answer.
        jitter: Sigma of the lognormal factor on every latency.
        reaction_us: The batcher runs so long after it was notified (Triton).
        burst_us: The same while requests pour in; the hand-off is slower by the same factor.
        handoff_us: An idle instance takes a staged batch so long after it was staged (Triton).
        timer_slack_us: A window ends so late.
        queues_batches: Batches are handed to the worker without asking whether it is free.
    """

    send_ms: float
    pre: Affine
    post: Affine
    first_answer: Affine
    answer_gap_ms: float
    jitter: float
    accept_ms: float = 0.0
    reaction_us: int = 0
    burst_us: int = 0
    handoff_us: int = 0
    timer_slack_us: int = 0
    queues_batches: bool = False

    def gap_ms(self, *, resends: bool) -> float:
        """Between further answers of a batch, in a closed loop or an open one."""
        return self.answer_gap_ms + (self.accept_ms if resends else 0.0)


SURROUNDINGS: Mapping[Server, Surroundings] = MappingProxyType(
    {
        Server.TRITON: Surroundings(
            send_ms=0.26,
            reaction_us=60,
            burst_us=300,
            handoff_us=60,
            timer_slack_us=60,
            pre=Affine(0.150, 0.010),
            post=Affine(0.376, 0.042),
            first_answer=Affine(0.610, 0.028),
            answer_gap_ms=0.02,
            jitter=0.08,
        ),
        Server.TORCHSERVE: Surroundings(
            send_ms=0.65,
            timer_slack_us=350,
            pre=Affine(0.560, 0.043),  # 0.06 of it until the worker's thread wakes
            post=Affine(0.500, 0.050),
            first_answer=Affine(0.775),
            answer_gap_ms=0.045,
            jitter=0.05,
        ),
        Server.MOSEC: Surroundings(
            send_ms=0.20,
            timer_slack_us=900,  # its timer ticks in whole milliseconds
            pre=Affine(0.200, 0.020),
            post=Affine(0.200, 0.019),
            first_answer=Affine(0.420, 0.035),
            answer_gap_ms=0.08,
            jitter=0.05,
        ),
        Server.LITSERVE: Surroundings(  # one process answers and accepts
            send_ms=0.40,
            pre=Affine(0.120, 0.015),
            post=Affine(0.140),
            first_answer=Affine(0.430),
            answer_gap_ms=0.2,
            accept_ms=0.25,
            jitter=0.08,
        ),
        Server.MLSERVER: Surroundings(
            send_ms=0.275,
            pre=Affine(0.750, 0.045),
            post=Affine(0.700),
            first_answer=Affine(0.600, 0.200),
            answer_gap_ms=0.075,
            jitter=0.05,
            queues_batches=True,
        ),
        Server.BENTOML: Surroundings(  # a guess: one event loop parses, batches and answers
            send_ms=0.60,
            pre=Affine(0.200, 0.020),
            post=Affine(0.200, 1.1),
            first_answer=Affine(1.0),
            answer_gap_ms=0.65,
            jitter=0.08,
        ),
        Server.RAYSERVE: Surroundings(  # a guess: a proxy process on both ways
            send_ms=3.0,
            pre=Affine(0.300, 0.030),
            post=Affine(0.300, 0.500),
            first_answer=Affine(3.0),
            answer_gap_ms=0.45,
            jitter=0.3,
        ),
    }
)
