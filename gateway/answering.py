"""What answers for one version of a model: engines behind a queue, or an ensemble of other models."""

from typing import Protocol

from batching.submissions import Call, Deliver
from gateway.engine import VersionStatistics
from models.inference import Tensors, Timing
from models.preprocessing import Preprocessing
from models.spec import ModelSpec


class Answering(Protocol):
    """One version of a model, ready to answer."""

    @property
    def spec(self) -> ModelSpec:
        """What is served."""
        ...

    @property
    def is_available(self) -> bool:
        """Whether a request could be answered now."""
        ...

    def submit(
        self, inputs: Tensors, rows: int, timeout_ns: int | None, priority: int, reply: Deliver[tuple[Tensors, Timing]]
    ) -> Call | None:
        """As `infer`, without a task; None for what only `infer` can do. Raises for what is not admitted."""
        ...

    async def infer(
        self, inputs: Tensors, rows: int, timeout_ns: int | None, priority: int = 0
    ) -> tuple[Tensors, Timing]:
        """Run ready tensors that fit the specification. Raises BatchingError and BackendError."""
        ...

    async def infer_image(self, image: bytes, how: Preprocessing, timeout_ns: int | None) -> tuple[Tensors, Timing]:
        """Decode and run one encoded image as a row of the only input. Raises ImageError too."""
        ...

    def statistics(self) -> VersionStatistics:
        """A snapshot."""
        ...

    async def drain(self) -> None:
        """Admit nothing more, and wait until everything admitted has been answered."""
        ...
