"""A model version as the rest of the program sees it: frozen, validated values without any file format in them."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from models.preprocessing import Preprocessing
from models.tensors import DataType, TensorSpec


class DeviceKind(enum.Enum):
    """Where an instance group runs."""

    AUTO = "KIND_AUTO"  # on the GPUs if there are any that the backend can use, else on the CPU
    CPU = "KIND_CPU"
    GPU = "KIND_GPU"
    MODEL = "KIND_MODEL"  # the model's code chooses


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """What one batch of a group needs while it runs (Triton's rate limiter).

    Attributes:
        name: Of the resource.
        count: How much of it.
        shared: It exists once for all devices, not once for each.
    """

    name: str
    count: int
    shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceGroup:
    """`count` instances on the CPU, or on each of `gpus`.

    Attributes:
        name: Unique within the model.
        kind: Where they run.
        count: How many, on each device.
        gpus: Ordinals of GPUs; empty means all.
        is_default_count: The configuration says nothing about the number, so that it may be measured.
        resources: What each of their batches needs.
        priority: Of the rate limiter: 2 gets half the turns of 1; 0 means 1.
    """

    name: str
    kind: DeviceKind
    count: int
    gpus: tuple[int, ...] = ()
    is_default_count: bool = False
    resources: tuple[Resource, ...] = ()
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One entry of ``optimization.execution_accelerators``, e.g. ``tensorrt`` with ``precision_mode``."""

    name: str
    parameters: Mapping[str, str] = field(default_factory=dict)


class Host(enum.Enum):
    """Where an executor lives."""

    AUTO = "auto"  # as fits the backend
    THREAD = "thread"  # in this process
    PROCESS = "process"  # in a worker process that may die


class NonFinite(enum.Enum):
    """What happens to answers with NaN or infinite numbers; all but `OFF` count them."""

    OFF = "off"  # nobody looks
    COUNT = "count"  # answered as they are
    FAIL = "fail"  # the request fails
    RETRY_FP32 = "retry_fp32"  # computed again in single precision, where the executor can


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionSpec:
    """How batches of this version are executed.

    Attributes:
        host: Where the executors live.
        step_timeout_s: A batch that runs for longer ends its worker process.
        load_timeout_s: Likewise for loading and warming up.
        max_restarts: Restarts of a worker within a minute before it counts as failed; -1 means no limit.
        gpu_accelerators: Of ``optimization.execution_accelerators``, in order of preference.
        cpu_accelerators: Likewise.
        cuda_graphs: ``optimization.cuda.graphs``: replay recorded kernels, one recording for each allowed size.
        non_finite: What happens to answers with NaN or infinite numbers.
    """

    host: Host = Host.AUTO
    step_timeout_s: float = 30.0
    load_timeout_s: float = 600.0
    max_restarts: int = 5
    gpu_accelerators: tuple[Accelerator, ...] = ()
    cpu_accelerators: tuple[Accelerator, ...] = ()
    cuda_graphs: bool = False
    non_finite: NonFinite = NonFinite.COUNT


class Oversize(enum.Enum):
    """What happens to a request with more rows than the largest batch."""

    REFUSE = "refuse"
    SPLIT = "split"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingSpec:
    """How requests of this version are batched.

    Attributes:
        policy: Name of the policy profile, e.g. ``shoal``, ``triton``, or ``single`` (one request at a time).
        parameters: The profile's parameters under their original names; what is missing has the original's default.
        parameter_lines: Where shoal.toml gives them, for messages; under the empty name, where it gives the policy.
        faithful: Keep the original server's lateness with timeouts, instead of answering everybody on time.
        deadlines: A request's timeout is a deadline for its whole answer. Otherwise it counts only where the policy has
            a timeout for requests in its queue, as with Triton.
        max_queue_requests: Requests that may wait or be decoded at once.
        max_queue_rows: Rows that may wait or be decoded at once.
        oversize: What happens to requests above the largest batch.
        allowed_rows: Batch sizes that the executor may see, ascending; batches are padded up to one of them. Empty
            means every size.
    """

    policy: str = "shoal"
    parameters: Mapping[str, object] = field(default_factory=dict)
    parameter_lines: Mapping[str, int] = field(default_factory=dict, compare=False)
    faithful: bool = False
    deadlines: bool = False
    max_queue_requests: int = 1024
    max_queue_rows: int = 4096
    oversize: Oversize = Oversize.REFUSE
    allowed_rows: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleStep:
    """One model of an ensemble (``ensemble_scheduling.step``).

    Attributes:
        model: Name of the composing model.
        version: Its version, or None for the one that its version policy prefers.
        inputs: By input of the composing model, the ensemble's tensor that feeds it.
        outputs: By output of the composing model, the ensemble's tensor that it becomes; outputs left out are dropped.
    """

    model: str
    version: int | None
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


class WarmupData(enum.Enum):
    """Where the elements of a warm-up input come from."""

    ZERO = "zero_data"
    RANDOM = "random_data"
    FILE = "input_data_file"


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmupInput:
    """One input of a warm-up request.

    Attributes:
        data_type: Element type.
        dims: Shape of one row, without the batch dimension.
        data: Where the elements come from.
        file: The file in the model's directory ``warmup/``, for `WarmupData.FILE`.
    """

    data_type: DataType
    dims: tuple[int, ...]
    data: WarmupData
    file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmupSample:
    """One block ``model_warmup``: a request that every instance runs before the version is ready.

    Attributes:
        name: For messages.
        rows: Rows of the request; 0 for a model without batch dimension.
        count: How often it is run.
        inputs: By name.
    """

    name: str
    rows: int
    count: int
    inputs: Mapping[str, WarmupInput]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenSpec:
    """Photographs with known rows and answers, compared whenever the version is loaded; see `models.golden`.

    Attributes:
        directory: The model's.
        name: Of the file, below the directory.
        tolerance_levels: By how much the mean of a cell of a row may differ, in levels of 0..255.
        tolerance_probability: By how much the probability of a class may differ.
    """

    directory: Path
    name: str = "golden.json"
    tolerance_levels: float = 2.0
    tolerance_probability: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """One version of one model.

    Attributes:
        name: Model name, the directory's name.
        version: Version number, the subdirectory's name.
        platform: Triton's platform word, e.g. ``onnxruntime_onnx``; empty if the backend has none.
        backend: Triton's backend word, e.g. ``onnxruntime``.
        max_batch_rows: Largest batch; 0 means that tensors have no batch dimension and requests run one at a time.
        inputs: Declared inputs, in order.
        outputs: Declared outputs, in order.
        instance_groups: Where and how often the model is instantiated, at least one.
        batching: Queue and batch rules.
        execution: Executor rules.
        preprocessing: How an encoded image becomes a row of the only input, or None.
        golden: What to compare before the version is ready, or None.
        scores: Name of the output whose elements are the scores of the classes; empty means the first one.
        file: The model file.
        parameters: The config's free parameters.
        config: The normalised, auto-completed configuration as JSON-ready values (what ``/config`` shows).
        version_name: What the model's author calls the version, where that is no number (TorchServe's ``1.0``).
        steps: Of an ensemble (`backend` is ``ensemble``), in the order of the configuration; else empty.
        warmup: Requests that every instance runs before the version is ready.
        wants_requests: The code is handed requests one by one, with their ids and parameters, not one dense batch.
        sources: Where values come from, by field path of `config`, e.g. ``config.pbtxt:3``, ``default``.
    """

    name: str
    version: int
    platform: str
    backend: str
    max_batch_rows: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    instance_groups: tuple[InstanceGroup, ...]
    batching: BatchingSpec = BatchingSpec()
    execution: ExecutionSpec = ExecutionSpec()
    preprocessing: Preprocessing | None = None
    golden: GoldenSpec | None = None
    scores: str = ""
    file: Path
    parameters: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, object] = field(default_factory=dict)
    version_name: str = ""
    steps: tuple[EnsembleStep, ...] = ()
    warmup: tuple[WarmupSample, ...] = ()
    wants_requests: bool = False
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def has_batch_dimension(self) -> bool:
        """Whether the first dimension of every tensor counts rows."""
        return self.max_batch_rows > 0

    @property
    def scores_output(self) -> TensorSpec:
        """The output whose elements are the scores of the classes."""
        return next((output for output in self.outputs if output.name == self.scores), self.outputs[0])

    @property
    def largest_batch_rows(self) -> int:
        """Most rows in one execution; a model without batch dimension runs requests of one row."""
        return max(1, self.max_batch_rows)
