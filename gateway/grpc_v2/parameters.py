"""The `parameters` maps of infer requests: of the request, and where shared memory is named for a tensor."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

from gateway.errors import UnsupportedRequestError
from gateway.v2.parameters import OfRequest
from models.errors import MalformedRequestError
from models.inference import Parameter

Message = Any
"""A protobuf message; tritonclient's have no types."""

_CHOICE = "parameter_choice"
_EMPTY_FINAL = "triton_enable_empty_final_response"
_CUSTOM_KINDS = frozenset(("bool_param", "int64_param", "string_param", "double_param"))
_MAX_SEQUENCE_ID_CHARACTERS = 128
_UNSIGNED = 2**64


class RegionParameters(NamedTuple):
    """Where in which region of shared memory a tensor is."""

    name: str
    offset: int
    size_bytes: int


def read_parameters(parameters: Mapping[str, Message]) -> OfRequest:
    """The parameters of a request.

    Raises:
        MalformedRequestError: One has the wrong type or value, or a reserved name.
        UnsupportedRequestError: The sequence's id is too long.
    """
    known: dict[str, Parameter] = {}
    custom: dict[str, Parameter] = {}
    for key, parameter in parameters.items():
        kind = parameter.WhichOneof(_CHOICE)
        read = _KNOWN.get(key)
        if read is None:
            custom[key] = _custom(key, kind, parameter)
        else:
            known[key] = read(key, kind, parameter)
    return OfRequest(
        priority=cast("int", known.get("priority", 0)),
        timeout_ns=cast("int", known.get("timeout", 0)) * 1000 or None,
        parameters=custom,
        sequence_id=cast("int | str", known.get("sequence_id", 0)),
        sequence_start=bool(known.get("sequence_start")),
        sequence_end=bool(known.get("sequence_end")),
    )


def read_region(tensor: str, parameters: Mapping[str, Message]) -> RegionParameters | None:
    """The shared memory that a tensor's parameters name, or None.

    Raises:
        MalformedRequestError: One has the wrong type, or the name or the size is missing.
    """
    name = _region_value(tensor, parameters, "shared_memory_region", "string_param")
    offset = _region_value(tensor, parameters, "shared_memory_offset", "int64_param")
    size_bytes = _region_value(tensor, parameters, "shared_memory_byte_size", "int64_param")
    if name is None:
        for key, value in (("shared_memory_offset", offset), ("shared_memory_byte_size", size_bytes)):
            if value is not None:
                raise MalformedRequestError(
                    f"'{key}' can not be specified without 'shared_memory_region' parameter for tensor '{tensor}'"
                )
        return None
    if size_bytes is None:
        raise MalformedRequestError(
            "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for tensor "
            f"'{tensor}'"
        )
    return RegionParameters(str(name), int(offset or 0) % _UNSIGNED, int(size_bytes) % _UNSIGNED)


def _region_value(tensor: str, parameters: Mapping[str, Message], key: str, expected: str) -> Parameter | None:
    if key not in parameters:  # asking for a missing one would add it
        return None
    parameter = parameters[key]
    if parameter.WhichOneof(_CHOICE) != expected:
        raise MalformedRequestError(
            f"invalid value type for '{key}' parameter for tensor '{tensor}', expected {expected}."
        )
    return cast("Parameter", getattr(parameter, expected))


def _custom(key: str, kind: str | None, parameter: Message) -> Parameter:
    if key.startswith("triton_"):
        raise MalformedRequestError(
            "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting "
            f"with 'triton_' are allowed: {_EMPTY_FINAL}"
        )
    if kind not in _CUSTOM_KINDS:
        raise _wrong_kind(key, "int64_param, bool_param, or string_param")
    return cast("Parameter", getattr(parameter, kind))


def _read_flag(key: str, kind: str | None, parameter: Message) -> bool:
    if kind != "bool_param":
        raise _wrong_kind(key, "bool_param")
    return bool(parameter.bool_param)


def _read_priority(key: str, kind: str | None, parameter: Message) -> int:
    if kind not in {"int64_param", "uint64_param"}:
        raise _wrong_kind(key, "int64_param or uint64_param")
    priority: int = getattr(parameter, kind)
    if priority < 0:
        raise MalformedRequestError(f"invalid value for '{key}', expected value >= 0.")
    return priority


def _read_timeout(key: str, kind: str | None, parameter: Message) -> int:
    if kind != "int64_param":
        raise _wrong_kind(key, "int64_param")
    return int(parameter.int64_param) % _UNSIGNED  # Triton takes -1 for the longest time that there is


def _read_sequence_id(key: str, kind: str | None, parameter: Message) -> int | str:
    if kind == "int64_param":
        return int(parameter.int64_param) % _UNSIGNED
    if kind != "string_param":
        raise _wrong_kind(key, "int64_param or string_param")
    if len(parameter.string_param.encode()) > _MAX_SEQUENCE_ID_CHARACTERS:
        raise UnsupportedRequestError(
            f"string correlation ID cannot be longer than {_MAX_SEQUENCE_ID_CHARACTERS} characters"
        )
    return str(parameter.string_param)


def _wrong_kind(key: str, expected: str) -> MalformedRequestError:
    return MalformedRequestError(f"invalid value type for '{key}' parameter, expected {expected}.")


_KNOWN: Mapping[str, Callable[[str, str | None, Message], Parameter]] = {
    "priority": _read_priority,
    "timeout": _read_timeout,
    "sequence_id": _read_sequence_id,
    "sequence_start": _read_flag,
    "sequence_end": _read_flag,
    _EMPTY_FINAL: _read_flag,  # only models with several responses have an empty one
}
