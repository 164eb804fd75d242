"""The engine: find the version, validate, run, answer. THE main path; no protocol, no process management in it."""

import asyncio
from collections.abc import Mapping, Sequence

from backends.errors import BackendError
from batching.core.errors import BatchingError
from gateway.classification import top_predictions
from gateway.engine import VersionStatistics
from gateway.served import Served
from gateway.validation import validate
from models.errors import (
    ImageError,
    InvalidRequestError,
    ModelNotFoundError,
    NotClassifierError,
    NoVersionError,
    VersionNotFoundError,
    VersionNotReadyError,
)
from models.inference import (
    ClassifyRequest,
    ClassifyResponse,
    InferRequest,
    InferResponse,
    Prediction,
    Timing,
)
from models.preprocessing import Preprocessing
from models.spec import ModelSpec

# The errors of one image; anything else is a defect of the program and fails the whole request.
_IMAGE_ERRORS = (ImageError, BatchingError, BackendError)

Result = tuple[tuple[Prediction, ...] | Exception, Timing]


class InferenceService:
    """Implements `gateway.engine.Engine` over loaded versions.

    Args:
        models: For each model of the repository its loaded versions, by number; empty if none could be loaded.
        failed: By model, the versions that should be served and could not be loaded; none named if all.
        strict_readiness: Whether a failed version keeps the server from being ready.
    """

    def __init__(
        self,
        models: Mapping[str, Mapping[int, Served]],
        failed: Mapping[str, Sequence[int]] | None = None,
        *,
        strict_readiness: bool = True,
    ) -> None:
        self._models = models
        self._failed = failed or {}
        self._strict_readiness = strict_readiness
        self._stopping = False

    async def infer(self, request: InferRequest) -> InferResponse:
        """See `Engine`."""
        served = self._find(request.model, request.version)
        rows = validate(served.spec, request.inputs, request.outputs)
        outputs, timing = await served.infer(request.inputs, rows, request.timeout_ns, request.priority)
        names = request.outputs or tuple(tensor.name for tensor in served.spec.outputs)
        return InferResponse(
            model=request.model,
            version=served.spec.version,
            request_id=request.request_id,
            outputs={name: outputs[name] for name in names},
            timing=timing,
        )

    async def classify(self, request: ClassifyRequest) -> ClassifyResponse:
        """See `Engine`. Each image is a request of its own, so that they batch with each other and with others'."""
        served, how = self._find_classifier(request)
        if len(request.images) == 1:  # no task for the common case
            outcomes = [await _classify_image(served, how, request, request.images[0])]
        else:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_classify_image(served, how, request, image)) for image in request.images]
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
        return not self._stopping and (not self._strict_readiness or self._all_work())

    def stop_being_ready(self) -> None:
        """The server is about to shut down: load balancers should send nothing more."""
        self._stopping = True

    def model_names(self) -> Sequence[str]:
        """See `Engine`."""
        return sorted(self._models)

    def ready_versions(self, model: str) -> Sequence[int]:
        """See `Engine`."""
        return sorted(self._versions(model))

    def model(self, model: str, version: int | None = None) -> ModelSpec:
        """See `Engine`."""
        return self._find(model, version).spec

    def is_model_ready(self, model: str, version: int | None = None) -> bool:
        """See `Engine`."""
        versions = self._versions(model)
        if version is None:
            return bool(versions) and versions[max(versions)].is_available
        if version not in versions and version not in self._failed.get(model, ()):
            raise VersionNotFoundError(model, version)
        return version in versions and versions[version].is_available

    def statistics(self) -> Sequence[VersionStatistics]:
        """See `Engine`."""
        return [
            self._models[model][version].statistics()
            for model in sorted(self._models)
            for version in sorted(self._models[model])
        ]

    def _all_work(self) -> bool:
        if self._failed:
            return False
        return all(served.is_available for versions in self._models.values() for served in versions.values())

    def _versions(self, model: str) -> Mapping[int, Served]:
        try:
            return self._models[model]
        except KeyError:
            raise ModelNotFoundError(model) from None

    def _find(self, model: str, version: int | None) -> Served:
        versions = self._versions(model)
        if version is None:
            if not versions:
                raise NoVersionError(model)
            return versions[max(versions)]
        if version in versions:
            return versions[version]
        if version in self._failed.get(model, ()):
            raise VersionNotReadyError(model, version)
        raise VersionNotFoundError(model, version)

    def _find_classifier(self, request: ClassifyRequest) -> tuple[Served, Preprocessing]:
        """The named model, or the only one that can classify."""
        names = [request.model] if request.model is not None else self._classifiers()
        if not self._models:
            raise NotClassifierError("no model is loaded: the repository is empty")
        if not names:
            raise NotClassifierError("no model here classifies images: none declares [preprocessing] in its shoal.toml")
        if len(names) > 1:
            raise InvalidRequestError(f"several models classify images, name one in the path: {', '.join(names)}")
        served = self._find(names[0], request.version)
        if served.spec.preprocessing is None:
            raise NotClassifierError(
                f"model '{names[0]}' cannot classify images: its shoal.toml declares no [preprocessing]"
            )
        return served, served.spec.preprocessing

    def _classifiers(self) -> list[str]:
        return [
            name
            for name in self.model_names()
            if any(served.spec.preprocessing for served in self._models[name].values())
        ]


async def _classify_image(
    served: Served, how: Preprocessing, request: ClassifyRequest, image: bytes | ImageError
) -> Result:
    if isinstance(image, ImageError):
        return image, Timing()
    try:
        outputs, timing = await served.infer_image(image, how, request.timeout_ns)
    except _IMAGE_ERRORS as error:
        return error, Timing()
    output = served.spec.scores_output
    return top_predictions(outputs[output.name][0], output.labels, request.top_k, how.output), timing


def _longest(timings: Sequence[Timing]) -> Timing:
    """Stage by stage the longest time of several images, which were handled side by side."""
    return Timing(
        decode_ns=max(timing.decode_ns for timing in timings),
        queue_ns=max(timing.queue_ns for timing in timings),
        compute_ns=max(timing.compute_ns for timing in timings),
        total_ns=max(timing.total_ns for timing in timings),
        batch_rows=max(timing.batch_rows for timing in timings),
    )
