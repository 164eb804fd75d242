"""An immutable snapshot of a scheduler."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerStatistics:
    """Gauges of now and counters since the start.

    Attributes:
        reserved_requests: Admitted, not yet in the queue.
        waiting_requests: In the queue or in a batch that has not started.
        waiting_rows: Their rows.
        running_batches: Started and not ended.
        instances: Instances that take batches.
        admitted_requests: Counter.
        refused_requests: Counter: not admitted, for whatever reason.
        dropped_requests: Counter: admitted, then dropped by the policy.
        expired_requests: Counter: the deadline passed.
        withdrawn_requests: Counter: the caller left before its answer.
        close_reasons: Counter: batches by `CloseReason` value.
        drop_reasons: Counter: dropped requests by `RefusalReason` value.
    """

    reserved_requests: int
    waiting_requests: int
    waiting_rows: int
    running_batches: int
    instances: int
    admitted_requests: int
    refused_requests: int
    dropped_requests: int
    expired_requests: int
    withdrawn_requests: int
    close_reasons: Mapping[str, int]
    drop_reasons: Mapping[str, int]
