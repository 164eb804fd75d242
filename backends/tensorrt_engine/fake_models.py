"""What models and plans are to the fake TensorRT, see `fake_api`."""

import enum
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_ERROR = 1  # ILogger.Severity


class FakeMode(enum.Enum):
    """TensorIOMode."""

    NONE = 0
    INPUT = 1
    OUTPUT = 2


class FakeLocation(enum.Enum):
    """TensorLocation."""

    DEVICE = 0
    HOST = 1


class FakeDataType(enum.Enum):
    """DataType."""

    FLOAT = 0
    HALF = 1
    INT8 = 2
    INT32 = 3
    BOOL = 4
    UINT8 = 5
    FP8 = 6
    BF16 = 7
    INT64 = 8


class FakeNetworkFlag(enum.IntEnum):
    """NetworkDefinitionCreationFlag."""

    STRONGLY_TYPED = 1


class FakeStrategy(enum.Enum):
    """ExecutionContextAllocationStrategy."""

    USER_MANAGED = 2


class FakePool(enum.Enum):
    """MemoryPoolType."""

    WORKSPACE = 0


class FakeBuilderFlag(enum.Enum):
    """BuilderFlag."""

    TF32 = 0


@dataclass(frozen=True, kw_only=True)
class FakeTensor:
    """One input or output of a model.

    Attributes:
        name: Unique.
        dtype: Name of a `FakeDataType`.
        shape: -1 varies.
        location: Name of a `FakeLocation`.
    """

    name: str
    dtype: str = "FLOAT"
    shape: tuple[int, ...] = (-1, 2)
    location: str = "DEVICE"


@dataclass(frozen=True, kw_only=True)
class FakeModel:
    """What an ONNX file, or a plan, is to the fake: output k is input k.

    Attributes:
        inputs: In order.
        outputs: In order.
        profiles: For each, by input: the least, best and largest shape. Of a plan only.
        version: TensorRT that built it. Of a plan only.
        compute: Compute capability that it was built for. Of a plan only.
    """

    inputs: tuple[FakeTensor, ...] = (FakeTensor(name="x"),)
    outputs: tuple[FakeTensor, ...] = (FakeTensor(name="y"),)
    profiles: tuple[Mapping[str, Sequence[Sequence[int]]], ...] = ()
    version: str = "11.4.0"
    compute: str = "9.0"

    def to_bytes(self) -> bytes:
        """As a file holds it."""
        return json.dumps(self, default=vars).encode()

    @staticmethod
    def from_bytes(content: bytes) -> "FakeModel":
        """Raises ValueError for anything else."""
        fields = json.loads(content)
        for kind in ("inputs", "outputs"):
            fields[kind] = tuple(FakeTensor(**{**tensor, "shape": tuple(tensor["shape"])}) for tensor in fields[kind])
        return FakeModel(**{**fields, "profiles": tuple(fields["profiles"])})


def profile_shape(model: FakeModel, name: str, profile: int) -> list[tuple[int, ...]]:
    """The least, best and largest shape of an input; of a static one three times its own."""
    if model.profiles:
        return [tuple(shape) for shape in model.profiles[profile][name]]
    return [next(tensor.shape for tensor in model.inputs if tensor.name == name)] * 3


def report(logger: Any, text: str) -> None:
    """Tell the logger of an error."""
    logger.log(_ERROR, text)
