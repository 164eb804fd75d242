"""The only thing that a wire surface knows: infer, classify, models, statistics, health.

Arguments and answers are plain values and buffers (see `models.inference`); the errors raised are those of `models`,
`batching` and `backends`, and each surface has one table that gives them its codes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from backends.members import MemberStatus
from batching.submissions import Call, Deliver
from models.inference import ClassifyRequest, ClassifyResponse, InferRequest, InferResponse
from models.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class Duration:
    """How often something happened and how long it took in all."""

    count: int = 0
    ns: int = 0


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts per bucket with ascending upper bounds; `counts` has one more entry, for everything above the last."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSizeStatistics:
    """Executions of one batch size (rows without padding)."""

    rows: int
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionStatistics:
    """Counters of one model version since it was loaded; monotonic except for the gauges.

    The durations are Triton's: `success` and `queue` count requests, the three compute durations are those of the
    batch, charged in full to every request in it that did not fail. An error that the model's own code gives as an
    answer counts as a success, as there.

    Attributes:
        model: Model name.
        version: Version number.
        last_inference_ms: Calendar time of the last batch, milliseconds since 1970; 0 if none.
        inference_count: Rows answered with success.
        execution_count: Batches executed, failed ones too.
        success: Requests answered with success, and their time from acceptance to answer.
        fail: Requests that failed after admission.
        queue: Time from entering the queue until execution, successful requests.
        compute_input: Gathering inputs.
        compute_infer: The executor.
        compute_output: Cutting outputs into rows.
        failures: Failed requests by reason: ``REJECTED``, ``CANCELED``, ``BACKEND``, ``OTHER``.
        batches: By batch size, ascending.
        close_reasons: Batches by the reason why they were closed.
        drop_reasons: Admitted requests that the policy dropped, by its reason.
        stages: Histograms in seconds by stage: ``decode``, ``queue``, ``compute``, ``total``.
        batch_rows: Histogram of rows per batch.
        waiting_requests: Gauge: requests in the queue.
        waiting_rows: Gauge: rows in the queue.
        reserved_requests: Gauge: admitted requests whose images are being decoded.
        running_batches: Gauge: batches being executed.
        pending_requests: Gauge: requests admitted and not yet executing.
        admitted_requests: Requests that were admitted; a chunk of a large request and an image count as one each.
        refused_requests: Requests that were not admitted (queue full, too many rows, shutting down).
        expired_requests: Admitted requests whose deadline passed before their answer.
        withdrawn_requests: Admitted requests that were given up: the client left, or the image was bad.
        padding_rows: Rows that were added to reach an allowed batch size.
        instances: Gauge: instances that take batches.
        members: Every instance, working or not.
    """

    model: str
    version: int
    last_inference_ms: int = 0
    inference_count: int = 0
    execution_count: int = 0
    success: Duration = Duration()
    fail: Duration = Duration()
    queue: Duration = Duration()
    compute_input: Duration = Duration()
    compute_infer: Duration = Duration()
    compute_output: Duration = Duration()
    failures: Mapping[str, int] = field(default_factory=dict)
    batches: tuple[BatchSizeStatistics, ...] = ()
    close_reasons: Mapping[str, int] = field(default_factory=dict)
    drop_reasons: Mapping[str, int] = field(default_factory=dict)
    stages: Mapping[str, Histogram] = field(default_factory=dict)
    batch_rows: Histogram = Histogram((), (0,), 0.0)
    waiting_requests: int = 0
    waiting_rows: int = 0
    reserved_requests: int = 0
    running_batches: int = 0
    pending_requests: int = 0
    admitted_requests: int = 0
    refused_requests: int = 0
    expired_requests: int = 0
    withdrawn_requests: int = 0
    padding_rows: int = 0
    instances: int = 0
    members: tuple[MemberStatus, ...] = ()


class Engine(Protocol):
    """Everything a surface may ask for."""

    async def infer(self, request: InferRequest) -> InferResponse:
        """Run one request.

        Raises:
            ModelUnavailableError: No such model or version, or not ready.
            InvalidRequestError: The tensors do not fit the model.
            BatchingError: Refused or expired: queue full, deadline, too many rows, shutting down.
            BackendError: The execution failed.
        """
        ...

    def submit(self, request: InferRequest, reply: Deliver[InferResponse]) -> Call | None:
        """As `infer`, for a surface that would rather be called than wait in a task.

        Args:
            request: What to run.
            reply: Gets the answer or the error, or CancelledError when the call was cancelled. Must not raise.

        Returns:
            What cancels it; None if nothing was done: the request needs a task, so `infer` has to be asked.

        Raises:
            As `infer`, for a request that was not admitted; there is no reply then.
        """
        ...

    async def classify(self, request: ClassifyRequest) -> ClassifyResponse:
        """Decode, run and label each image; an image's own error is a value in the response.

        Raises:
            ModelUnavailableError: No such model or version, or not ready.
            NotClassifierError: The model declares no preprocessing.
            BatchingError: None of the images could be admitted.
        """
        ...

    def is_live(self) -> bool:
        """Whether the process works at all."""
        ...

    def is_ready(self) -> bool:
        """Whether every model that should be loaded is ready and the server is not shutting down."""
        ...

    def model_names(self) -> Sequence[str]:
        """All known models, sorted."""
        ...

    def ready_versions(self, model: str) -> Sequence[int]:
        """Versions that answer, ascending. Raises ModelNotFoundError."""
        ...

    def model(self, model: str, version: int | None = None) -> ModelSpec:
        """The version that a request for (model, version) would get. Raises ModelUnavailableError."""
        ...

    def version_number(self, model: str, text: str) -> int:
        """The version that a number or a label means. Raises ModelNotFoundError and VersionNotFoundError."""
        ...

    def is_stopping(self) -> bool:
        """Whether the server is about to end."""
        ...

    def is_model_ready(self, model: str, version: int | None = None) -> bool:
        """Whether a request for it would be taken. Raises ModelNotFoundError and VersionNotFoundError."""
        ...

    def problem(self, model: str) -> str:
        """What keeps versions of it from being served, or served as they are now on disk; empty if nothing does.

        Raises:
            ModelNotFoundError: No such model.
        """
        ...

    def statistics(self) -> Sequence[VersionStatistics]:
        """A snapshot of the counters of all loaded versions, by model and version."""
        ...
