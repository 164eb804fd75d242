"""What gateway and worker say to each other: JSON that is checked when it arrives, and never a pickle."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from pydantic import ConfigDict, Field, TypeAdapter

from backends.failures import Failure
from backends.ports import Placement
from backends.process.slots import Natural, TensorPlace
from models.spec import ModelSpec

STACKS_SIGNAL = signal.SIGUSR1
"""On which a worker writes the stacks of its threads to stderr, whatever they are doing."""


@dataclass(frozen=True, slots=True)
class Load:
    """Load the executor."""

    kind: Literal["load"] = "load"


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Warm the executor up; `capacity_bytes` is the size of the inputs' region."""

    sizes: Sequence[Natural]
    capacity_bytes: Natural
    kind: Literal["warm_up"] = "warm_up"


@dataclass(frozen=True, slots=True)
class Run:
    """Compute the batch that is in the inputs' region, or compute it again `in_fp32`."""

    rows: Natural
    capacity_bytes: Natural
    tensors: tuple[TensorPlace, ...]
    in_fp32: bool = False
    kind: Literal["run"] = "run"


@dataclass(frozen=True, slots=True)
class Close:
    """Close the executor; it may be loaded again."""

    kind: Literal["close"] = "close"


@dataclass(frozen=True, slots=True)
class Done:
    """The request succeeded; an answer is in the outputs' region."""

    capacity_bytes: Natural = 0
    tensors: tuple[TensorPlace, ...] = ()
    kind: Literal["done"] = "done"


Request = Load | WarmUp | Run | Close
Reply = Done | Failure


@dataclass(frozen=True, slots=True)
class Assign:
    """Make executors, as the JSON document says whose file descriptor comes along."""

    number: Natural
    kind: Literal["assign"] = "assign"


@dataclass(frozen=True, slots=True)
class Leave:
    """Let the running batches finish, close everything and end."""

    kind: Literal["leave"] = "leave"


@dataclass(frozen=True, slots=True)
class Hello:
    """The worker is ready."""

    kind: Literal["hello"] = "hello"


class LaneFds(NamedTuple):
    """File descriptors of one end of a lane: the socket, and the regions of inputs and outputs."""

    end: int
    inputs: int
    outputs: int


@dataclass(frozen=True, slots=True)
class LaneMade:
    """One lane of an assignment. `LaneFds` come along."""

    number: Natural
    instance: Natural
    lane: Natural
    page_index: Natural
    kind: Literal["lane_made"] = "lane_made"


@dataclass(frozen=True, slots=True)
class Assigned:
    """An assignment succeeded; all its lanes have been told."""

    number: Natural
    kind: Literal["assigned"] = "assigned"


@dataclass(frozen=True, slots=True)
class Refused:
    """An assignment failed."""

    number: Natural
    failure: Failure
    kind: Literal["refused"] = "refused"


Order = Assign | Leave
News = Hello | LaneMade | Assigned | Refused


@dataclass(frozen=True, slots=True)
class Assignment:
    """The document that comes with `Assign`."""

    spec: ModelSpec
    placement: Placement
    __pydantic_config__ = ConfigDict(ser_json_inf_nan="constants")


REQUESTS: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="kind")])
REPLIES: TypeAdapter[Reply] = TypeAdapter(Annotated[Reply, Field(discriminator="kind")])
ORDERS: TypeAdapter[Order] = TypeAdapter(Annotated[Order, Field(discriminator="kind")])
NEWS: TypeAdapter[News] = TypeAdapter(Annotated[News, Field(discriminator="kind")])
ASSIGNMENT: TypeAdapter[Assignment] = TypeAdapter(Assignment)
