"""What code says of an answer besides its tensors: a hidden output carries it from the executor to the engine.

The counterpart of `models.request_rows`: one more BYTES output, an element a row. The first row of a request has the
parameters as JSON, the others are empty, so that an answer that is cut, joined or padded on its way has them once.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import orjson

from models.inference import Parameter, Tensors

RESPONSE_OUTPUT = "\x00response"
"""Name of the hidden output; no config.pbtxt declares one like it."""

NO_PARAMETERS: Mapping[str, Parameter] = {}
"""Shared, so never written to: its type says so."""


def with_parameters(outputs: Tensors, rows: int, parameters: Mapping[str, Parameter]) -> Tensors:
    """The outputs of one request and the hidden one; without parameters the outputs as they are.

    Args:
        outputs: Of one request; not modified.
        rows: Of the request; 1 for a model without batch dimension.
        parameters: Of its answer.

    Raises:
        TypeError: They are no text or number that JSON has.
    """
    if not parameters:
        return outputs
    elements = np.full(rows, b"", np.object_)
    elements[0] = orjson.dumps(parameters)
    return {**outputs, RESPONSE_OUTPUT: elements}


def parameters_of(outputs: Tensors) -> Mapping[str, Parameter]:
    """The parameters that came with the outputs of one request, or of a part of it; empty if none did."""
    elements = outputs.get(RESPONSE_OUTPUT)
    if elements is None or not elements[0]:
        return NO_PARAMETERS
    parameters: Mapping[str, Parameter] = orjson.loads(elements[0])
    return parameters


def joined(parts: Sequence[Tensors]) -> Tensors:
    """The outputs of one request, of those of its parts in order; where parts differ, a later one's parameter counts.

    Args:
        parts: At least one; with batch dimension, if several. All have the same visible outputs.
    """
    if len(parts) == 1:
        return parts[0]
    names = [name for name in parts[0] if name != RESPONSE_OUTPUT]
    outputs = {name: np.concatenate([part[name] for part in parts]) for name in names}
    parameters = {key: value for part in parts for key, value in parameters_of(part).items()}
    return with_parameters(outputs, 1, parameters)  # it is whole now, and not cut again
