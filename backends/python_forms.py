"""The executors of models that are code, in the form that their code has: our own, or Triton's."""

import difflib
from collections.abc import Sequence
from dataclasses import replace

from backends.errors import LoadError
from backends.ports import Executor, Placement
from backends.python_code import ModelCode, ModelContext, TensorDescription
from backends.python_executor import PythonExecutor, SharedModel
from backends.triton_python.code import TritonCode
from backends.triton_python.executor import TritonPythonExecutor
from models.spec import ModelSpec
from models.tensors import TensorSpec

_MAX_LANES = 256


def create_executors(spec: ModelSpec, placement: Placement) -> Sequence[Sequence[Executor]]:
    """For each instance a model of its own, with as many lanes as the parameter `max_in_flight` says, by default 1.

    Raises:
        LoadError: The parameter is not valid.
    """
    lanes = _lane_count(spec)
    context = _context(spec, placement)
    names = placement.names or tuple(f"{spec.name}_{index}" for index in range(placement.instances))
    create = TritonPythonExecutor if spec.wants_requests else PythonExecutor
    models = [SharedModel(_code(spec), replace(context, instance_name=name), lanes=lanes) for name in names]
    return [[create(spec, model) for _ in range(lanes)] for model in models]


def _code(spec: ModelSpec) -> ModelCode:
    return TritonCode(spec) if spec.wants_requests else ModelCode(spec)


def _lane_count(spec: ModelSpec) -> int:
    near = difflib.get_close_matches("max_in_flight", spec.parameters, n=1, cutoff=0.8)
    if near and near[0] != "max_in_flight":
        raise LoadError(f"model '{spec.name}': parameter '{near[0]}' is unknown, did you mean 'max_in_flight'?")
    text = spec.parameters.get("max_in_flight", "1")
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= _MAX_LANES):
        expected = f"a number of batches from 1 to {_MAX_LANES}"
        raise LoadError(f"model '{spec.name}': parameter 'max_in_flight' is '{text}', expected {expected}")
    return int(text)


def _context(spec: ModelSpec, placement: Placement) -> ModelContext:
    return ModelContext(
        name=spec.name,
        version=spec.version,
        directory=spec.file.absolute().parent,
        device="cuda:0" if placement.is_gpu else "cpu",
        cores=max(1, placement.cores // placement.instances),
        parameters=dict(spec.parameters),
        max_batch_size=spec.max_batch_rows,
        inputs=tuple(map(_description, spec.inputs)),
        outputs=tuple(map(_description, spec.outputs)),
    )


def _description(tensor: TensorSpec) -> TensorDescription:
    return TensorDescription(tensor.name, tensor.data_type.value, tensor.data_type.numpy, tensor.dims)
