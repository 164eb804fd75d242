"""An engine in memory: no batching, no instances, the protocol's laws all the same."""

import asyncio
import queue
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from batching.submissions import Deliver
from gateway.engine import BatchSizeStatistics, Duration, VersionStatistics
from gateway.validation import validate
from models.errors import ModelNotFoundError, NotClassifierError, VersionNotFoundError, VersionNotReadyError
from models.inference import ClassifyRequest, ClassifyResponse, InferRequest, InferResponse, Tensors
from models.spec import DeviceKind, InstanceGroup, ModelSpec
from models.tensors import DataType, TensorSpec

Compute = Callable[[Tensors], dict[str, np.ndarray]]

LABELS = ("cat", "dog", "", "bird")


def make_spec(
    name: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], max_batch_rows: int = 8
) -> ModelSpec:
    """A version 1 with a small configuration."""
    config = {
        "name": name,
        "platform": "fake",
        "max_batch_size": max_batch_rows,
        "input": [{"name": t.name, "data_type": t.data_type.config_name, "dims": list(t.dims)} for t in inputs],
        "output": [{"name": t.name, "data_type": t.data_type.config_name, "dims": list(t.dims)} for t in outputs],
    }
    return ModelSpec(
        name=name,
        version=1,
        platform="fake",
        backend="fake",
        max_batch_rows=max_batch_rows,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        instance_groups=(InstanceGroup(name=name, kind=DeviceKind.CPU, count=1),),
        file=Path("fake"),
        config=config,
    )


def tensor(name: str, data_type: DataType, *dims: int, **more: object) -> TensorSpec:
    """A declaration in one line."""
    return TensorSpec(name=name, data_type=data_type, dims=dims, **more)  # type: ignore[arg-type]


def _add_sub(inputs: Tensors) -> dict[str, np.ndarray]:
    left, right = inputs["INPUT0"], inputs["INPUT1"]
    return {"OUTPUT0": left + right, "OUTPUT1": left - right}  # type: ignore[operator]


def _identity(inputs: Tensors) -> dict[str, np.ndarray]:
    return {"OUT": next(iter(inputs.values()))}


def _standard_models() -> dict[str, tuple[ModelSpec, Compute]]:
    int32, fp32 = DataType.INT32, DataType.FP32
    specs = [
        (
            make_spec(
                "simple",
                [tensor("INPUT0", int32, 16), tensor("INPUT1", int32, 16)],
                [tensor("OUTPUT0", int32, 16), tensor("OUTPUT1", int32, 16)],
            ),
            _add_sub,
        ),
        (
            make_spec("ident_str", [tensor("IN", DataType.BYTES, 1)], [tensor("OUT", DataType.BYTES, 1)]),
            _identity,
        ),
        (make_spec("cls", [tensor("IN", fp32, 4)], [tensor("OUT", fp32, 4, labels=LABELS)]), _identity),
        (make_spec("scalar", [tensor("IN", fp32)], [tensor("OUT", fp32)], 0), _identity),
        (make_spec("hold", [tensor("IN", fp32, -1)], [tensor("OUT", fp32, -1)]), _identity),
    ]
    for data_type in DataType:
        name = f"ident_{data_type.value.lower()}"
        specs.append((make_spec(name, [tensor("IN", data_type, -1)], [tensor("OUT", data_type, -1)]), _identity))
    return {spec.name: (spec, compute) for spec, compute in specs}


class FakeEngine:
    """Answers in the calling task.

    Args:
        errors: By model name: what `infer` raises instead of answering.

    Attributes:
        requests: Every request that `infer` was given.
        ready: What `is_ready` says; set it.
        stopping: What `is_stopping` says; set it.
        unready: Models whose version is loading; add to it.
        hold_entered: Set while a request of model ``hold`` waits.
        hold_released: Set it to let the requests of ``hold`` go on.
        happened: ``entered`` and ``cancelled`` for requests of ``hold``, for tests in another thread.
    """

    def __init__(self, errors: Mapping[str, Exception] | None = None) -> None:
        self._models = _standard_models()
        self._errors = dict(errors or {})
        self._counts: dict[str, int] = {}
        self._rows: dict[str, int] = {}
        self.requests: list[InferRequest] = []
        self.ready = True
        self.stopping = False
        self.unready: set[str] = set()
        self.hold_entered = asyncio.Event()
        self.hold_released = asyncio.Event()
        self.happened: queue.SimpleQueue[str] = queue.SimpleQueue()

    async def infer(self, request: InferRequest) -> InferResponse:
        """Validate, compute, count."""
        self.requests.append(request)
        spec = self.model(request.model, request.version)
        rows = validate(spec, request.inputs, request.outputs)
        if request.model in self._errors:
            raise self._errors[request.model]
        if request.model == "hold":
            await self._hold()
        outputs = self._models[spec.name][1](request.inputs)
        self._counts[spec.name] = self._counts.get(spec.name, 0) + 1
        self._rows[spec.name] = self._rows.get(spec.name, 0) + rows
        return InferResponse(
            model=spec.name,
            version=spec.version,
            request_id=request.request_id,
            outputs={name: values for name, values in outputs.items() if name in (request.outputs or outputs)},
        )

    def submit(self, request: InferRequest, reply: Deliver[InferResponse]) -> None:
        """Everything needs a task here."""

    async def _hold(self) -> None:
        self.hold_entered.set()
        self.happened.put("entered")
        try:
            await self.hold_released.wait()
        except asyncio.CancelledError:
            self.happened.put("cancelled")
            raise

    async def classify(self, request: ClassifyRequest) -> ClassifyResponse:
        """No model here declares preprocessing."""
        raise NotClassifierError(f"model '{request.model}' declares no preprocessing")

    def is_live(self) -> bool:
        """Always."""
        return True

    def is_ready(self) -> bool:
        """As set."""
        return self.ready

    def is_stopping(self) -> bool:
        """As set."""
        return self.stopping

    def model_names(self) -> Sequence[str]:
        """Sorted."""
        return sorted(self._models)

    def ready_versions(self, model: str) -> Sequence[int]:
        """Version 1, unless it is loading."""
        self._find(model, None)
        return () if model in self.unready else (1,)

    def model(self, model: str, version: int | None = None) -> ModelSpec:
        """The spec."""
        spec = self._find(model, version)
        if model in self.unready:
            raise VersionNotReadyError(model, 1)
        return spec

    def version_number(self, model: str, text: str) -> int:
        """Numbers, and the label ``stable`` for version 1."""
        self._find(model, None)
        if text.isascii() and text.isdigit():
            return int(text)
        if text != "stable":
            raise VersionNotFoundError(model, text)
        return 1

    def problem(self, model: str) -> str:
        """None."""
        self._find(model, None)
        return ""

    def is_model_ready(self, model: str, version: int | None = None) -> bool:
        """Known and not loading."""
        self._find(model, version)
        return model not in self.unready

    def _find(self, model: str, version: int | None) -> ModelSpec:
        if model not in self._models:
            raise ModelNotFoundError(model)
        spec = self._models[model][0]
        if version not in (None, spec.version):
            raise VersionNotFoundError(model, version or 0)
        return spec

    def statistics(self) -> Sequence[VersionStatistics]:
        """Counts of answered requests; every duration is one microsecond a request."""
        return [self._statistics_of(name) for name in self.model_names()]

    def _statistics_of(self, name: str) -> VersionStatistics:
        count = self._counts.get(name, 0)
        each = Duration(count, count * 1000)
        batch = BatchSizeStatistics(rows=1, compute_input=each, compute_infer=each, compute_output=each)
        entry = VersionStatistics(model=name, version=1, batches=(batch,), instances=1)
        return replace(
            entry,
            inference_count=self._rows.get(name, 0),
            execution_count=count,
            success=each,
            queue=each,
            compute_input=each,
            compute_infer=each,
            compute_output=each,
        )
