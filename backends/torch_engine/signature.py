"""How named tensors become a call of a model, and what it returns becomes named tensors. Knows no engine."""

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from backends.errors import ExecutionError, LoadError
from models.spec import ModelSpec
from models.tensors import DataType, TensorSpec

Tensor = TypeVar("Tensor")

_POSITION = re.compile(r".+__(\d+)")  # Triton's names for LibTorch: INPUT__0, input__1


@dataclass(frozen=True, slots=True)
class Call:
    """How a model is called.

    Attributes:
        positions: Names of the inputs that are positional arguments, in order.
        keywords: Names of the inputs that are given by name.
    """

    positions: tuple[str, ...]
    keywords: tuple[str, ...] = ()

    def arguments(self, tensors: Mapping[str, Tensor]) -> tuple[list[Tensor | None], dict[str, Tensor]]:
        """Positional and keyword arguments. An optional input that is missing is None, or left out at the end."""
        found = [tensors.get(name) for name in self.positions]
        while found and found[-1] is None:
            found.pop()
        return found, {name: tensors[name] for name in self.keywords if name in tensors}


def bind_inputs(spec: ModelSpec, arguments: Sequence[str], keyword_only: Collection[str] = ()) -> Call:
    """Match declared inputs with the arguments of `forward`.

    Names that end in ``__<number>`` are positions; else names of arguments, if all of them are; else the declared order
    is the order of the arguments.

    Args:
        spec: The model version.
        arguments: Names of the arguments, without `self`; those that do not stand there cannot be matched by name.
        keyword_only: Those of them that have to be given by name.

    Raises:
        LoadError: An input or output is of strings, or the positions are not 0, 1, 2, ...
    """
    where = f"model '{spec.name}' version {spec.version}"
    for tensor in (*spec.inputs, *spec.outputs):
        if tensor.data_type is DataType.BYTES:
            raise LoadError(f"{where}: '{tensor.name}' is TYPE_STRING; PyTorch has no strings, expected numbers")
    names = tuple(tensor.name for tensor in spec.inputs)
    positions = _positions(spec.inputs)
    if positions is None:
        return _by_name(names, arguments, keyword_only) if set(names) <= set(arguments) else Call(names)
    if sorted(positions) != list(range(len(names))):
        raise LoadError(
            f"{where}: inputs {', '.join(names)} end in positions {sorted(positions)}, expected 0 to {len(names) - 1}"
        )
    return Call(tuple(name for _, name in sorted(zip(positions, names, strict=True))))


def _by_name(names: Sequence[str], arguments: Sequence[str], keyword_only: Collection[str]) -> Call:
    """Positional as far as no argument is left out: exported programs want their arguments just as in the example."""
    leading = list(itertools.takewhile(lambda name: name in names and name not in keyword_only, arguments))
    return Call(tuple(leading), tuple(name for name in names if name not in leading))


class Results:
    """Names the tensors that a model returns: one, a tuple or list of them, or a dict.

    Names that end in ``__<number>`` pick a position, so that others may be left out; a dict is matched by name if all
    names are in it; else the declared order is the model's, and their number must be the same.

    Args:
        spec: The model version.
        tensor_type: The engine's tensors.
    """

    def __init__(self, spec: ModelSpec, tensor_type: type[Tensor]) -> None:
        self._names = [output.name for output in spec.outputs]
        self._positions = _positions(spec.outputs)
        self._tensor_type = tensor_type

    def name(self, returned: Any) -> dict[str, Any]:
        """The declared outputs by name, tensors of the engine's type. Raises ExecutionError if they are not there."""
        if isinstance(returned, Mapping) and set(self._names) <= returned.keys():
            picked = [returned[name] for name in self._names]
        else:
            picked = self._by_position(self._listed(returned))
        for name, value in zip(self._names, picked, strict=True):
            if not isinstance(value, self._tensor_type):
                raise ExecutionError(f"output '{name}' is of type {type(value).__name__}, expected a tensor")
        return dict(zip(self._names, picked, strict=True))

    def _listed(self, returned: Any) -> list[Any]:
        if isinstance(returned, Mapping):
            return list(returned.values())
        return list(returned) if isinstance(returned, list | tuple) else [returned]

    def _by_position(self, values: list[Any]) -> list[Any]:
        positions = self._positions or range(len(self._names))
        is_complete = max(positions) < len(values) if self._positions else len(values) == len(self._names)
        if not is_complete:
            raise ExecutionError(f"the model returns {len(values)} outputs, declared are {', '.join(self._names)}")
        return [values[position] for position in positions]


def check_output(declared: TensorSpec, shape: tuple[int, ...], *, has_batch_dimension: bool) -> None:
    """Compare the shape of an output with its declaration. Raises ExecutionError with both."""
    item = shape[1:] if has_batch_dimension else shape
    if not declared.accepts(item) or (has_batch_dimension and not shape):
        expected = ("rows", *declared.dims) if has_batch_dimension else declared.dims
        raise ExecutionError(
            f"output '{declared.name}' has shape {list(shape)}, declared is [{', '.join(map(str, expected))}]"
        )


def _positions(tensors: Sequence[TensorSpec]) -> list[int] | None:
    """The numbers at the ends of the names, or None if one has none."""
    matches = [_POSITION.fullmatch(tensor.name) for tensor in tensors]
    numbers = [int(match[1]) for match in matches if match is not None]
    return numbers if len(numbers) == len(tensors) else None
