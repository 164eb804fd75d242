"""Parameters of requests and responses: JSON objects, as text and as plain values."""

import json
from collections.abc import Mapping
from typing import Any

from backends.triton_python.tensors import TritonModelException
from models.inference import Parameter


def as_json(parameters: str | Mapping[str, Any] | None) -> str:
    """The text that code gets when it asks for the parameters: without blanks, as Triton writes it."""
    if isinstance(parameters, str):
        return parameters
    return json.dumps(dict(parameters or {}), ensure_ascii=False, separators=(",", ":"))


def checked(parameters: Any) -> dict[str, Parameter]:
    """What code says of a response: a dict, or None.

    Raises:
        TritonModelException: It is something else, or a name or value is of another type than Triton takes.
    """
    if parameters is None:
        return {}
    if not isinstance(parameters, Mapping):
        kind = type(parameters).__name__
        raise TritonModelException(f"the parameters of a response are of type {kind}, expected a dict")
    for name, value in parameters.items():
        if not isinstance(name, str):
            raise TritonModelException(f"Expect parameters keys to have type str, found type {type(name)}")
        if not isinstance(value, bool | int | str):
            raise TritonModelException(f"Expect parameters values to have type bool/int/str, found type {type(value)}")
    return dict(parameters)
