"""Triton's generate extension: a flat JSON object in, a flat JSON object out. Pure."""

from collections.abc import Sequence
from math import prod

from gateway.v2 import json_tensors, tensors
from gateway.v2.members import JsonObject, optional, parse_json
from gateway.v2.response import dump
from models.errors import InvalidRequestError, JsonAccessError, MalformedRequestError
from models.inference import Array, InferRequest, InferResponse, Parameter
from models.spec import ModelSpec
from models.tensors import TensorSpec


def read_generate(spec: ModelSpec, version: int | None, body: bytes, limit_bytes: int) -> InferRequest:
    """A request from a generate body: members named like an input are that input, the others are parameters.

    Args:
        spec: The model of the path.
        version: Version of the path, if any.
        body: The whole body.
        limit_bytes: Largest size of one tensor.

    Raises:
        JsonAccessError: No JSON object, or a member of the wrong type.
        MalformedRequestError: A tensor that the model cannot have, or a parameter that is no scalar, or an
            input that is there twice, beside `parameters` and in it.
        RequestTooLargeError: A tensor is over the limit.
    """
    top = parse_json(body)
    if not top and not body.lstrip().startswith(b"{"):
        raise JsonAccessError("attempt to get members for non-object")
    request_id = optional(top, "id", str, "")
    reader = _Reader(spec, request_id, limit_bytes)
    for name, value in top.items():
        if name == "parameters" and not reader.is_input(name):
            reader.read_nested(value)
        else:
            reader.read(name, value)
    return InferRequest(
        model=spec.name, version=version, inputs=reader.inputs, request_id=request_id, parameters=reader.parameters
    )


class _Reader:
    """Sorts members into inputs and parameters."""

    def __init__(self, spec: ModelSpec, request_id: str, limit_bytes: int) -> None:
        self.inputs: dict[str, Array] = {}
        self.parameters: dict[str, Parameter] = {}
        self._spec = spec
        self._request_id = request_id
        self._limit_bytes = limit_bytes
        self._declared = {tensor.name: tensor for tensor in spec.inputs}

    def is_input(self, name: str) -> bool:
        return name in self._declared

    def read(self, name: str, value: object) -> None:
        tensor = self._declared.get(name)
        if tensor is not None:
            self._read_input(tensor, value)
        elif isinstance(value, str | int | float):
            # Beyond 64 bits with a sign it is a double, as in Triton.
            self.parameters[name] = float(value) if type(value) is int and value >= 2**63 else value
        else:
            raise MalformedRequestError(
                f"parameter '{name}' has invalid type. It should be either 'int', 'bool', or 'string'."
            )

    def read_nested(self, value: object) -> None:
        if not isinstance(value, dict):
            raise JsonAccessError(
                "Expected JSON object for keyword: 'parameters': attempt to access JSON non-object as object"
            )
        for name, member in value.items():
            try:
                self.read(name, member)
            except InvalidRequestError as error:
                raise type(error)(f"Converting keyword: 'parameters': {error}") from None

    def _read_input(self, tensor: TensorSpec, value: object) -> None:
        name = tensor.name
        if name in self.inputs:
            raise MalformedRequestError(
                f"[request id: {self._request_id or '<id_unknown>'}] input '{name}' already exists in request"
            )
        elements = value if isinstance(value, list) else [value]
        dims = (-1, *tensor.dims) if self._spec.has_batch_dimension else tensor.dims
        shape = _shape(name, dims, len(elements))
        wire = tensors.WIRES[tensor.data_type.value]
        count = tensors.check_shape(name, wire, shape)
        self.inputs[name] = json_tensors.from_json(
            name, wire, shape, count, elements, self._limit_bytes, self._spec.name
        )


def _shape(name: str, dims: Sequence[int], count: int) -> tuple[int, ...]:
    """The model's shape for so many elements: the innermost variable dimension takes what the fixed ones leave."""
    fixed = prod(dim for dim in dims if dim >= 0)
    rest, left_over = divmod(count, fixed) if fixed else (0, count)
    variable = [position for position, dim in enumerate(dims) if dim < 0]
    if left_over or (not variable and rest != 1):
        raise MalformedRequestError(f"The schema can not convert input '{name}' to tensor with proper shape")
    shape = [1 if dim < 0 else dim for dim in dims]
    if variable:
        shape[variable[-1]] = rest
    return tuple(shape)


def render_generate(response: InferResponse) -> bytes:
    """The answer's JSON, members in the order of their names, tensors flat and single elements bare.

    Raises:
        MalformedRequestError: An output's type has no JSON form.
    """
    members: JsonObject = {"model_name": response.model, "model_version": str(response.version), **response.parameters}
    if response.request_id:
        members["id"] = response.request_id
    for name, array in response.outputs.items():
        values = tensors.to_json(array)
        members[name] = values[0] if array.size == 1 else values
    return dump(dict(sorted(members.items())), response)
