"""Counters of one version."""

from dataclasses import replace

from batching.callers import BatchReport
from batching.core.batches import CloseReason
from batching.core.statistics import SchedulerStatistics
from batching.ports import BatchTimes
from gateway.engine import Duration, VersionStatistics
from gateway.recorder import FAILURE_REASONS, Recorder
from models.inference import Timing

IDLE = SchedulerStatistics(
    reserved_requests=0,
    waiting_requests=0,
    waiting_rows=0,
    running_batches=0,
    instances=1,
    admitted_requests=0,
    refused_requests=0,
    dropped_requests=0,
    expired_requests=0,
    withdrawn_requests=0,
    close_reasons={},
    drop_reasons={},
)
CLOSED = {"reason": CloseReason.EAGER, "opened_ns": 0, "sealed_ns": 0}
AT_ONCE = BatchTimes(started_ns=0, gathered_ns=0, computed_ns=0, ended_ns=0)


class StoppedClock:
    def now_ns(self) -> int:
        return 1_700_000_000_123_456_789


def snapshot(recorder: Recorder) -> VersionStatistics:
    return recorder.snapshot("m", 1, IDLE)


def test_a_batchs_times_are_charged_to_each_of_its_requests_that_succeeded_and_once_to_its_size() -> None:
    recorder = Recorder(StoppedClock())
    times = BatchTimes(started_ns=100, gathered_ns=110, computed_ns=150, ended_ns=153)

    recorder.batch(BatchReport(rows=5, requests=3, failed_requests=1, padding_rows=3, times=times, **CLOSED))

    statistics = snapshot(recorder)
    assert statistics.execution_count == 1
    assert (statistics.compute_input, statistics.compute_infer, statistics.compute_output) == (
        Duration(2, 20),
        Duration(2, 80),
        Duration(2, 6),
    )
    assert [(size.rows, size.compute_infer) for size in statistics.batches] == [(5, Duration(1, 40))]
    assert statistics.last_inference_ms == 1_700_000_000_123


def test_a_failed_batch_is_an_execution_that_no_request_is_charged_for() -> None:
    recorder = Recorder()

    recorder.batch(BatchReport(rows=5, requests=2, failed_requests=2, padding_rows=0, times=None, **CLOSED))

    statistics = snapshot(recorder)
    assert statistics.execution_count == 1
    assert [(size.rows, size.compute_infer) for size in statistics.batches] == [(5, Duration(1, 0))]
    assert statistics.compute_infer == Duration()


def test_an_error_that_the_code_answers_is_a_success_as_in_triton() -> None:
    recorder = Recorder()

    recorder.batch(BatchReport(rows=5, requests=1, failed_requests=1, padding_rows=0, times=None, **CLOSED))
    recorder.error_response(5, 7)

    statistics = snapshot(recorder)
    assert (statistics.inference_count, statistics.success, statistics.fail) == (5, Duration(1, 7), Duration())
    assert {statistics.queue.count, statistics.compute_input.count, statistics.compute_output.count} == {1}


def test_a_success_counts_its_rows_and_its_stages() -> None:
    recorder = Recorder()

    recorder.success(3, Timing(queue_ns=2_000_000, compute_ns=5_000_000, total_ns=8_000_000))

    statistics = snapshot(recorder)
    assert (statistics.inference_count, statistics.success, statistics.queue) == (
        3,
        Duration(1, 8_000_000),
        Duration(1, 2_000_000),
    )
    assert {stage: sum(histogram.counts) for stage, histogram in statistics.stages.items()} == {
        "decode": 0,
        "queue": 1,
        "compute": 1,
        "total": 1,
    }


def test_a_value_on_a_bound_belongs_to_its_bucket_and_one_above_all_to_the_last() -> None:
    recorder = Recorder()

    for rows in (8, 9, 1000):
        recorder.batch(BatchReport(rows=rows, requests=1, padding_rows=0, times=AT_ONCE, **CLOSED))

    histogram = snapshot(recorder).batch_rows
    counts = dict(zip((*histogram.bounds, "above"), histogram.counts, strict=True))
    assert (counts[8.0], counts[16.0], counts["above"], histogram.total) == (1, 1, 1, 1017)


def test_failures_are_counted_by_reason_and_every_reason_is_shown() -> None:
    recorder = Recorder()

    recorder.failure("CANCELED", 5)
    recorder.failure("CANCELED", 6)

    statistics = snapshot(recorder)
    assert statistics.failures == {**dict.fromkeys(FAILURE_REASONS, 0), "CANCELED": 2}
    assert statistics.fail == Duration(2, 11)


def test_the_gauges_are_the_schedulers() -> None:
    scheduler = replace(
        IDLE,
        waiting_requests=1,
        waiting_rows=2,
        reserved_requests=4,
        running_batches=8,
        refused_requests=16,
        instances=32,
        close_reasons={"full": 3},
    )

    statistics = Recorder().snapshot("m", 1, scheduler)

    assert (statistics.waiting_requests, statistics.waiting_rows, statistics.pending_requests) == (1, 2, 5)
    assert (statistics.running_batches, statistics.refused_requests, statistics.instances) == (8, 16, 32)
    assert statistics.close_reasons == {"full": 3}
