"""The engine: find the version, validate, run, answer. THE main path; no protocol, no process management in it."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from backends.errors import BackendError
from batching.core.errors import BatchingError
from batching.submissions import Call, Deliver
from gateway.answering import Answering
from gateway.catalogue import Catalogue
from gateway.classification import top_predictions
from gateway.engine import VersionStatistics
from gateway.hosted import Hosted
from gateway.validation import validate
from models.errors import (
    ImageError,
    InvalidRequestError,
    NotClassifierError,
    NotReadyYetError,
)
from models.inference import (
    ClassifyRequest,
    ClassifyResponse,
    InferRequest,
    InferResponse,
    Parameter,
    Prediction,
    Tensors,
    Timing,
)
from models.preprocessing import Preprocessing
from models.request_rows import RequestInfo, attach
from models.response_rows import NO_PARAMETERS, parameters_of
from models.spec import ModelSpec

# The errors of one image; anything else is a defect of the program and fails the whole request.
_IMAGE_ERRORS = (ImageError, BatchingError, BackendError)

Result = tuple[tuple[Prediction, ...] | Exception, Timing]


class InferenceService:
    """Implements `gateway.engine.Engine` over loaded versions.

    Args:
        catalogue: Finds what answers.
        strict_readiness: Whether a model that is needed and does not work keeps the server from being ready.
    """

    def __init__(self, catalogue: Catalogue, *, strict_readiness: bool = True) -> None:
        self._catalogue = catalogue
        self._strict_readiness = strict_readiness
        self._stopping = False

    async def infer(self, request: InferRequest) -> InferResponse:
        """See `Engine`."""
        with self._catalogue.find(request.model, request.version) as served:
            rows = validate(served.spec, request.inputs, request.outputs)
            inputs = _inputs(served.spec, request, rows)
            answer = await served.infer(inputs, rows, request.timeout_ns, request.priority)
        return _response(served.spec, request, *answer)

    def submit(self, request: InferRequest, reply: Deliver[InferResponse]) -> Call | None:
        """See `Engine`. The version is leased until the reply."""
        hosted = self._catalogue.find(request.model, request.version)
        spec = hosted.spec
        rows = validate(spec, request.inputs, request.outputs)
        inputs = _inputs(spec, request, rows)
        call = None
        answered = partial(_answered, hosted, request, reply)
        served = hosted.lease()
        try:
            call = served.submit(inputs, rows, request.timeout_ns, request.priority, answered)
        finally:
            if call is None:
                hosted.release()
        return call

    async def classify(self, request: ClassifyRequest) -> ClassifyResponse:
        """See `Engine`. Each image is a request of its own, so that they batch with each other and with others'."""
        with self._find_classifier(request) as served:
            how = _preprocessing(served.spec)
            if len(request.images) == 1:  # no task for the common case
                outcomes = [await _classify_image(served, how, request, request.images[0])]
            else:
                async with asyncio.TaskGroup() as group:
                    tasks = [
                        group.create_task(_classify_image(served, how, request, image)) for image in request.images
                    ]
                outcomes = [task.result() for task in tasks]
        return ClassifyResponse(
            model=served.spec.name,
            version=served.spec.version,
            request_id=request.request_id,
            results=tuple(result for result, _ in outcomes),
            timing=_longest([timing for _, timing in outcomes]),
        )

    def is_live(self) -> bool:
        """See `Engine`."""
        return True

    def is_ready(self) -> bool:
        """See `Engine`."""
        return not self._stopping and (not self._strict_readiness or self._catalogue.all_needed_work())

    def is_stopping(self) -> bool:
        """See `Engine`."""
        return self._stopping

    def stop_being_ready(self) -> None:
        """The server is about to shut down: load balancers should send nothing more."""
        self._stopping = True

    def model_names(self) -> Sequence[str]:
        """See `Engine`."""
        return self._catalogue.names()

    def ready_versions(self, model: str) -> Sequence[int]:
        """See `Engine`."""
        return self._catalogue.ready_versions(model)

    def model(self, model: str, version: int | None = None) -> ModelSpec:
        """See `Engine`."""
        return self._catalogue.find(model, version).spec

    def version_number(self, model: str, text: str) -> int:
        """See `Engine`."""
        return self._catalogue.number_of(model, text)

    def is_model_ready(self, model: str, version: int | None = None) -> bool:
        """See `Engine`."""
        return self._catalogue.is_ready(model, version)

    def problem(self, model: str) -> str:
        """See `Engine`."""
        return self._catalogue.problem(model)

    def statistics(self) -> Sequence[VersionStatistics]:
        """See `Engine`."""
        return [hosted.served.statistics() for hosted in self._catalogue.hosted()]

    def _find_classifier(self, request: ClassifyRequest) -> Hosted:
        """The named model, or the only one that can classify."""
        names = [request.model] if request.model is not None else self._classifiers()
        if not names or (names == [request.model] and not self._serves(names[0])):
            pending = self._catalogue.pending(request.model)
            if pending:
                raise NotReadyYetError(f"what classifies images is not ready: {pending}")
        if not self._catalogue.names():
            raise NotClassifierError("no model is loaded: the repository is empty")
        if not names:
            raise NotClassifierError("no model here classifies images: none declares [preprocessing] in its shoal.toml")
        if len(names) > 1:
            raise InvalidRequestError(f"several models classify images, name one in the path: {', '.join(names)}")
        hosted = self._catalogue.find(names[0], request.version)
        _preprocessing(hosted.spec)  # or it is none
        return hosted

    def _serves(self, model: str) -> bool:
        return model in self._catalogue.names() and bool(self._catalogue.ready_versions(model))

    def _classifiers(self) -> list[str]:
        return list(dict.fromkeys(hosted.spec.name for hosted in self._catalogue.hosted() if hosted.spec.preprocessing))


def _inputs(spec: ModelSpec, request: InferRequest, rows: int) -> Tensors:
    """With what the request says besides its tensors, for models that are told."""
    if not spec.wants_requests and not spec.steps:
        return request.inputs
    return attach(request.inputs, rows if spec.wants_requests else 1, RequestInfo.of(request))


def _answered(
    hosted: Hosted,
    request: InferRequest,
    reply: Deliver[InferResponse],
    outcome: tuple[Tensors, Timing] | BaseException,
) -> None:
    """The end of what was submitted."""
    spec = hosted.spec
    hosted.release()
    reply(outcome if isinstance(outcome, BaseException) else _response(spec, request, *outcome))


def _response(spec: ModelSpec, request: InferRequest, outputs: Tensors, timing: Timing) -> InferResponse:
    wanted = request.outputs or [tensor.name for tensor in spec.outputs]
    # In the model's order, whatever the request's: so does Triton.
    chosen = {name: values for name, values in outputs.items() if name in wanted}
    parameters = parameters_of(outputs) if spec.wants_requests else NO_PARAMETERS
    if spec.steps:
        parameters = _of_sequence(request)
    return InferResponse(request.model, spec.version, chosen, request.request_id, timing, parameters)


def _of_sequence(request: InferRequest) -> Mapping[str, Parameter]:
    """What the answer of an ensemble says besides its tensors, as in Triton."""
    return {
        "sequence_id": request.sequence_id,
        "sequence_start": request.sequence_start,
        "sequence_end": request.sequence_end,
    }


def _preprocessing(spec: ModelSpec) -> Preprocessing:
    if spec.preprocessing is None and spec.backend == "torchserve":
        raise NotClassifierError(f"model '{spec.name}' cannot classify images: archives of TorchServe answer /v2 only")
    if spec.preprocessing is None:
        raise NotClassifierError(
            f"model '{spec.name}' cannot classify images: its shoal.toml declares no [preprocessing]"
        )
    return spec.preprocessing


async def _classify_image(
    served: Answering, how: Preprocessing, request: ClassifyRequest, image: bytes | ImageError
) -> Result:
    if isinstance(image, ImageError):
        return image, Timing()
    try:
        outputs, timing = await served.infer_image(image, how, request.timeout_ns)
    except _IMAGE_ERRORS as error:
        return error, Timing()
    output = served.spec.scores_output
    return top_predictions(outputs[output.name], output.labels, request.top_k, how.output), timing


def _longest(timings: Sequence[Timing]) -> Timing:
    """Stage by stage the longest time of several images, which were handled side by side."""
    return Timing(
        decode_ns=max(timing.decode_ns for timing in timings),
        queue_ns=max(timing.queue_ns for timing in timings),
        compute_ns=max(timing.compute_ns for timing in timings),
        total_ns=max(timing.total_ns for timing in timings),
        batch_rows=max(timing.batch_rows for timing in timings),
    )
