"""One recorded run of a real server, in one vocabulary for all servers."""

from dataclasses import dataclass
from enum import Enum

from loadtest.fidelity.recordings import Recording


class Server(Enum):
    """Servers with a policy here, by the first word of their recorded name (`litserve_fast` is LitServe)."""

    TRITON = "triton"
    TORCHSERVE = "torchserve"
    LITSERVE = "litserve"
    MOSEC = "mosec"
    MLSERVER = "mlserver"
    BENTOML = "bentoml"
    RAYSERVE = "rayserve"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingConfig:
    """What a server's own configuration says about batching.

    Attributes:
        max_batch_rows: The largest batch.
        delay_us: The window, wherever this server starts it.
        instances: How many batches run at once.
        batches: False: every request runs alone.
        preferred_rows: Ascending preferred sizes; empty if there are none.
        queue_limit_requests: Waiting requests before one is refused; 0 means no limit.
        timeout_us: How long a request may wait; 0 means for ever.
        delays_late: A late request goes to the end of the queue instead of being refused.
        priority_levels: 0 for a single queue.
        preserve_ordering: Answers leave in order of arrival.
    """

    max_batch_rows: int
    delay_us: int
    instances: int = 1
    batches: bool = True
    preferred_rows: tuple[int, ...] = ()
    queue_limit_requests: int = 0
    timeout_us: int = 0
    delays_late: bool = False
    priority_levels: int = 0
    preserve_ordering: bool = False

    @property
    def has_queue_policy(self) -> bool:
        """Whether Triton forms batches only for idle instances: any queue policy or priority switches staging off."""
        return bool(self.queue_limit_requests or self.timeout_us or self.priority_levels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One recorded run. Its requests have one row each.

    Attributes:
        case: Its name; never looked at except to print it.
        server: Which server.
        config: Its batching configuration.
        clients: Clients of the closed loop, or None: an open loop with the recorded arrivals.
        service_model: What the recorded model does, in words.
        mean_queue_ms: The server's own figure for the whole run, or None.
        recording: What happened.
    """

    case: str
    server: Server
    config: BatchingConfig
    clients: int | None
    service_model: str
    mean_queue_ms: float | None
    recording: Recording
