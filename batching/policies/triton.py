"""Triton's dynamic batcher: its configuration, and the policy that follows from it.

The rule itself starts in `batching.policies.triton_policy`. A model without a `dynamic_batching` block does not come
here: it runs single requests, `Greedy(max_requests=1)`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from batching.policies.triton_form import Form
from batching.policies.triton_options import TritonExperiments, TritonLatencies
from batching.policies.triton_policy import LimitedTriton, Triton
from batching.policies.triton_queue import QueuePolicies, QueuePolicy

__all__ = ["QueuePolicy", "TritonExperiments", "TritonLatencies", "TritonSettings", "create_triton"]

_MICROSECOND_NS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonSettings:
    """The parameters of `dynamic_batching` in config.pbtxt, with its names, units and defaults.

    Attributes:
        preferred_batch_size: Sizes in rows, in any order; empty means the largest batch only.
        max_queue_delay_microseconds: How long the oldest request may wait for a preferred size.
        preserve_ordering: Answers leave in the order in which requests were batched. The scheduler does that, see
            `Scheduler(preserve_ordering=True)`; here only its conditions are checked.
        priority_levels: Levels 1 (most urgent) to this; 0: a single queue.
        default_priority_level: The level of requests that name none or one that does not exist.
        default_queue_policy: Of the single queue, or of the levels that have none of their own.
        priority_queue_policy: Of single levels.
        check_shapes: Whether rows may differ in shape (a variable dimension besides the batch one).
        faithful: Late requests are noticed as late as in the original; otherwise at the moment when they become late.
    """

    preferred_batch_size: tuple[int, ...] = ()
    max_queue_delay_microseconds: int = 0
    preserve_ordering: bool = False
    priority_levels: int = 0
    default_priority_level: int = 0
    default_queue_policy: QueuePolicy = field(default_factory=QueuePolicy)
    priority_queue_policy: Mapping[int, QueuePolicy] = field(default_factory=dict)
    check_shapes: bool = False
    faithful: bool = True

    def __post_init__(self) -> None:
        """Refuse impossible values, naming the field."""
        if any(size < 1 for size in self.preferred_batch_size):
            raise ValueError(f"preferred_batch_size must be positive, found {list(self.preferred_batch_size)}")
        for name in ("max_queue_delay_microseconds", "priority_levels"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, found {getattr(self, name)}")
        self._check_levels()
        if self.preserve_ordering:
            self._check_order()

    @property
    def demands_late_binding(self) -> bool:
        """Whether payloads may be formed only for idle instances."""
        return self.priority_levels > 0 or self.default_queue_policy.demands_late_binding

    def _check_levels(self) -> None:
        levels = range(1, self.priority_levels + 1)
        known = f"found {{}} with priority_levels {self.priority_levels}"
        if (levels or self.default_priority_level) and self.default_priority_level not in levels:
            expected = f"must be 1 to {self.priority_levels}" if levels else "must be 0 without priority levels"
            raise ValueError(f"default_priority_level {expected}, {known.format(self.default_priority_level)}")
        for level in self.priority_queue_policy:
            if level not in levels:
                raise ValueError(f"priority_queue_policy must name existing levels only, {known.format(level)}")

    def _check_order(self) -> None:
        if self.priority_levels > 1:
            raise ValueError(
                f"preserve_ordering must be false with more than one priority level, found {self.priority_levels}"
            )
        if any(policy.delays for policy in (self.default_queue_policy, *self.priority_queue_policy.values())):
            raise ValueError("preserve_ordering must be false with a queue policy that delays, found true")


def create_triton(
    settings: TritonSettings,
    max_batch_rows: int,
    *,
    latencies: TritonLatencies | None = None,
    experiments: TritonExperiments | None = None,
) -> Triton:
    """The policy for one model version.

    Args:
        settings: Its configuration.
        max_batch_rows: Its `max_batch_size`, at least 1.
        latencies: Those of a real server's threads; none by default.
        experiments: Deviations from the rule; none by default.

    Raises:
        ValueError: A preferred size is above the largest batch.
    """
    experiments = experiments or TritonExperiments()
    preferred = sorted({*settings.preferred_batch_size}) or [max_batch_rows]
    if preferred[-1] > max_batch_rows:
        raise ValueError(f"preferred_batch_size {preferred[-1]} is above max_batch_size {max_batch_rows}")
    policies = QueuePolicies(settings.priority_levels, settings.default_queue_policy, settings.priority_queue_policy)
    kind = LimitedTriton if policies.has_limits else Triton
    return kind(
        Form(preferred, settings.max_queue_delay_microseconds * _MICROSECOND_NS),
        policies,
        binds_late=settings.demands_late_binding if experiments.bind == "auto" else experiments.bind == "late",
        check_shapes=settings.check_shapes,
        faithful=settings.faithful,
        latencies=latencies or TritonLatencies(),
        experiments=experiments,
    )
