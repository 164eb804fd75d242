"""What gateway and worker say to each other: JSON that is checked when it arrives, and never a pickle."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from pydantic import ConfigDict, Field, TypeAdapter

from backends import errors
from backends.batch_run import describe
from backends.errors import BackendError
from backends.ports import Placement
from backends.process.slots import Natural, ProtocolError, TensorPlace
from models.spec import ModelSpec

_ERRORS = {
    error.__name__: error
    for error in vars(errors).values()
    if isinstance(error, type) and issubclass(error, BackendError)
}
_MAX_TEXT = 10_000

STACKS_SIGNAL = signal.SIGUSR1
"""On which a worker writes the stacks of its threads to stderr, whatever they are doing."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of this package on its way: its class, its text, its fields."""

    error_type: str
    text: str
    fields: Mapping[str, str | int]
    kind: Literal["failure"] = "failure"

    @staticmethod
    def of(error: BaseException, fallback: type[BackendError]) -> "Failure":
        """Describe an error; one that is not of this package becomes a `fallback` with its type and text."""
        if not isinstance(error, BackendError):
            return Failure(fallback.__name__, _printable(describe(error)), {})
        known = next(base.__name__ for base in type(error).__mro__ if base.__name__ in _ERRORS)
        fields = {name: value for name, value in vars(error).items() if isinstance(value, str | int)}
        return Failure(known, _printable(str(error)), fields)

    def error(self) -> BackendError:
        """The error again. Raises ProtocolError for a class that does not exist."""
        known = _ERRORS.get(self.error_type)
        if known is None:
            raise ProtocolError(f"unknown error {self.error_type!r}")
        error = known.__new__(known, self.text)  # __init__ may take the fields, and has made the text of them
        vars(error).update(self.fields)
        return error


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
    """Compute the batch that is in the inputs' region."""

    rows: Natural
    capacity_bytes: Natural
    tensors: tuple[TensorPlace, ...]
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


def _printable(text: str) -> str:
    return text[:_MAX_TEXT].encode(errors="replace").decode()  # names of files may hold half characters
