"""What crosses the engine's boundary: plain values and buffers that would survive a byte round trip.

No connection, future, callback or clock is in here, so a surface may live in another process than the engine.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.errors import ImageError

Array = NDArray[np.generic]
Tensors = Mapping[str, Array]
"""Tensors by name. BYTES tensors are object arrays of ``bytes``."""

Parameter = str | int | float | bool

_NO_PARAMETERS: Mapping[str, Parameter] = {}  # shared, so never written to: its type says so


class InferRequest(NamedTuple):
    """One call of one model with ready tensors.

    Attributes:
        model: Model name.
        inputs: Tensors by name, batch dimension included when the model has one. They may be read-only views on the
            request body and are never written.
        version: Version number, or None for the version policy's default.
        outputs: Names of the wanted outputs in order; empty means all.
        request_id: The caller's id, echoed; empty if none.
        priority: 1 is the most urgent; 0 means the model's default.
        timeout_ns: Time the caller is willing to wait from now on, or None.
        parameters: Custom parameters for the model.
        sequence_id: Which sequence the request belongs to; 0 or an empty text means none.
        sequence_start: Whether it is the first of its sequence.
        sequence_end: Whether it is the last of its sequence.
    """

    model: str
    inputs: Tensors
    version: int | None = None
    outputs: tuple[str, ...] = ()
    request_id: str = ""
    priority: int = 0
    timeout_ns: int | None = None
    parameters: Mapping[str, Parameter] = _NO_PARAMETERS
    sequence_id: int | str = 0
    sequence_start: bool = False
    sequence_end: bool = False


class Timing(NamedTuple):
    """Where one request's time went, in nanoseconds.

    Attributes:
        decode_ns: Decoding and preprocessing of encoded images; 0 for tensors.
        queue_ns: From entering the queue until its batch started executing.
        compute_ns: Execution of its batch, gather and scatter included.
        total_ns: From the engine's acceptance until the answer was ready.
        batch_rows: Rows of the batch that it ran in (the largest, when a request was cut into several).
    """

    decode_ns: int = 0
    queue_ns: int = 0
    compute_ns: int = 0
    total_ns: int = 0
    batch_rows: int = 0


NO_TIMING = Timing()


class InferResponse(NamedTuple):
    """The answer to an `InferRequest`: the wanted tensors in the model's order, and the parameters that it adds."""

    model: str
    version: int
    outputs: Tensors
    request_id: str = ""
    timing: Timing = NO_TIMING
    parameters: Mapping[str, Parameter] = _NO_PARAMETERS


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifyRequest:
    """Encoded images (JPEG, PNG, ...) for a model that declares its preprocessing and labels.

    Attributes:
        model: Model name, or None for the only one that can classify.
        images: One encoded file each, at least one. An error stands for an image that the surface could not even
            extract (bad base64); it is answered at its place.
        top_k: How many classes to answer per image, most probable first.
    """

    model: str | None = None
    version: int | None = None
    images: tuple[bytes | ImageError, ...]
    top_k: int = 5
    request_id: str = ""
    timeout_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One class of one image: index, label and probability in [0, 1]."""

    index: int
    label: str
    probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifyResponse:
    """The answer to a `ClassifyRequest`: for each image, in order, its predictions or the error that it met."""

    # An error is a value here: one bad image of several must not fail the others.

    model: str
    version: int
    request_id: str = ""
    results: tuple[tuple[Prediction, ...] | Exception, ...]
    timing: Timing = NO_TIMING
