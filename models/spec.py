"""A model version as the rest of the program sees it: frozen, validated values without any file format in them."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from models.preprocessing import Preprocessing
from models.tensors import TensorSpec


class DeviceKind(enum.Enum):
    """Where an instance group runs."""

    CPU = "KIND_CPU"
    GPU = "KIND_GPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceGroup:
    """`count` instances on the CPU, or on each of `gpus`."""

    name: str
    kind: DeviceKind
    count: int
    gpus: tuple[int, ...] = ()


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
    max_queue_requests: int = 1024
    max_queue_rows: int = 4096
    oversize: Oversize = Oversize.REFUSE
    allowed_rows: tuple[int, ...] = ()


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
        preprocessing: How an encoded image becomes a row of the only input, or None.
        scores: Name of the output whose elements are the scores of the classes; empty means the first one.
        file: The model file.
        parameters: The config's free parameters.
        config: The normalised, auto-completed configuration as JSON-ready values (what ``/config`` shows).
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
    preprocessing: Preprocessing | None = None
    scores: str = ""
    file: Path
    parameters: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, object] = field(default_factory=dict)

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
