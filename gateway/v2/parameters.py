"""The `parameters` of an infer request: what Triton knows of them, and the model's own."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

from gateway.errors import UnsupportedRequestError
from gateway.v2.members import is_unsigned, wrong_kind
from models.errors import JsonAccessError, MalformedRequestError
from models.inference import Parameter

_MAX_SEQUENCE_ID_CHARACTERS = 128
_MAX_SIGNED = 2**63 - 1


class OfRequest(NamedTuple):
    """The fields of an `InferRequest` that parameters give it, in their order there."""

    priority: int
    timeout_ns: int | None
    parameters: Mapping[str, Parameter]
    sequence_id: int | str
    sequence_start: bool
    sequence_end: bool


class RequestParameters(NamedTuple):
    """What the parameters say of the request, and whether outputs are to be sent in binary form."""

    of_request: OfRequest
    wants_binary: bool


def read_parameters(value: object) -> RequestParameters:
    """Read the member `parameters` of a request.

    Raises:
        JsonAccessError: It is no object, or a parameter that Triton knows is of the wrong type.
        MalformedRequestError: A name is reserved, or a custom parameter is no scalar.
        UnsupportedRequestError: The sequence's id is too long.
    """
    if not isinstance(value, dict):
        raise JsonAccessError("failed to get request params.: attempt to get members for non-object")
    known: dict[str, object] = {}
    custom: dict[str, Parameter] = {}
    for key, parameter in value.items():
        check = _KNOWN.get(key)
        if check is not None:
            check(key, parameter)
            known[key] = parameter
        else:
            custom[key] = _custom(key, parameter)
    timeout_us = cast("int", known.get("timeout", 0))
    request = OfRequest(
        priority=cast("int", known.get("priority", 0)),
        timeout_ns=timeout_us * 1000 or None,
        parameters=custom,
        sequence_id=cast("int | str", known.get("sequence_id", 0)),
        sequence_start=bool(known.get("sequence_start")),
        sequence_end=bool(known.get("sequence_end")),
    )
    return RequestParameters(request, bool(known.get("binary_data_output")))


def _custom(key: str, value: object) -> Parameter:
    if key.startswith("triton_"):
        raise MalformedRequestError(
            "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified."
        )
    if not isinstance(value, str | int | float):
        raise MalformedRequestError(
            f"parameter '{key}' has invalid type. It should be either 'int', 'bool', or 'string'."
        )
    return float(value) if type(value) is int and value > _MAX_SIGNED else value  # as Triton's parameters have it


def _check_unsigned(key: str, value: object) -> None:
    if not is_unsigned(value):
        raise wrong_kind(key, "unsigned-integer")


def _check_boolean(key: str, value: object) -> None:
    if not isinstance(value, bool):
        raise wrong_kind(key, "boolean")


def _check_sequence_id(key: str, value: object) -> None:
    if is_unsigned(value):
        return
    if not isinstance(value, str):
        raise wrong_kind(key, "string")
    if len(value) > _MAX_SEQUENCE_ID_CHARACTERS:
        raise UnsupportedRequestError(
            f"string correlation ID cannot be longer than {_MAX_SEQUENCE_ID_CHARACTERS} characters"
        )


_KNOWN: Mapping[str, Callable[[str, object], None]] = {
    "priority": _check_unsigned,
    "timeout": _check_unsigned,
    "sequence_id": _check_sequence_id,
    "sequence_start": _check_boolean,
    "sequence_end": _check_boolean,
    "binary_data_output": _check_boolean,
}
