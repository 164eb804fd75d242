"""Models that are code: a file ``model.py`` with a class ``Model``; see docs/python-models.md.

::

    class Model:
        def __init__(self, context): ...         # optional
        def execute(self, inputs):               # or: async def
            return {"output": ...}
        def warm_up(self, sizes): ...            # optional
        def close(self): ...                     # optional
        thread_safe = True                       # optional: execute may be called by several threads at once

or the same functions without a class. Nothing of this package is imported by such a file.
"""

import difflib
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from backends.errors import ExecutionError, LoadError, WrongRowsError
from backends.ports import Executor, Placement
from backends.python_code import ModelContext, TensorDescription, UserCode, takes_argument
from backends.python_loop import LoopThread
from models.inference import Array, Tensors
from models.spec import ModelSpec
from models.tensors import DataType, TensorSpec

_MAX_LANES = 256


class SharedModel:
    """One model object for all lanes of an instance: made by the first that loads, closed by the last.

    Args:
        spec: The model version; `file` is its code.
        context: Given to the model.
        lanes: How many batches may be in it at once.
    """

    def __init__(self, spec: ModelSpec, context: ModelContext, *, lanes: int) -> None:
        self._code = UserCode(spec)
        self._context = context
        self._lanes = lanes
        self._lock = threading.Lock()
        self._users = 0
        self._is_warm = False
        self._model: Any = None
        self._loop: LoopThread | None = None

    def acquire(self) -> None:
        """Make the model unless another lane has. Raises LoadError."""
        with self._lock:
            if not self._users:
                self._load()
            self._users += 1

    def release(self) -> None:
        """Close the model unless another lane uses it. Never raises."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            try:
                self._call_if_there("close")
            except BaseException as error:  # noqa: BLE001 - it is gone anyway; the description is logged
                self._code.describe(error)
            finally:
                self._unload()

    def warm_up(self, sizes: Sequence[int]) -> None:
        """Let the model warm up, once for all lanes. Raises LoadError."""
        with self._lock:
            if self._is_warm:
                return
            try:
                self._call_if_there("warm_up", list(sizes))
            except BaseException as error:  # noqa: BLE001 - whatever the model raises
                failure = self._code.load_error(error)
            else:
                self._is_warm = True
                return
        raise failure

    def execute(self, inputs: Mapping[str, Array]) -> Any:
        """What the model answers, unchecked. Raises ExecutionError."""
        try:
            return self._call(self._model.execute, inputs)
        except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt fail the batch, too
            failure = self._code.execution_error(error)
        raise failure  # outside, because the original's traceback would keep the batch in memory

    def _load(self) -> None:
        try:
            owner = self._code.load()
            self._check(owner)
            self._create(owner)
        except BaseException:
            self._unload()
            raise

    def _check(self, owner: Any) -> None:
        is_parallel = inspect.iscoroutinefunction(owner.execute) or getattr(owner, "thread_safe", False) is True
        if self._lanes > 1 and not is_parallel:
            raise self._code.refusal(
                f"the parameter max_in_flight = {self._lanes} with an execute for one batch at a time",
                "expected `async def execute`, or `thread_safe = True` beside it",
            )
        if any(inspect.iscoroutinefunction(getattr(owner, name, None)) for name in ("execute", "warm_up", "close")):
            self._loop = LoopThread(f"{self._context.name} event loop")
            self._loop.start()

    def _create(self, owner: Any) -> None:
        try:
            self._model = self._call(self._instantiate, owner) if inspect.isclass(owner) else owner
        except BaseException as error:  # noqa: BLE001 - whatever the model raises
            failure = self._code.load_error(error)
        else:
            if takes_argument(self._model.execute):
                return
            found = f"execute{inspect.signature(self._model.execute)}"
            failure = self._code.refusal(found, "expected one argument beside self: execute(self, inputs)")
        raise failure

    def _instantiate(self, owner: Any) -> Any:
        return owner(self._context) if takes_argument(owner) else owner()

    def _call(self, function: Callable[..., Any], *arguments: object) -> Any:
        return function(*arguments) if self._loop is None else self._loop.call(function, *arguments)

    def _call_if_there(self, name: str, *arguments: object) -> None:
        function = getattr(self._model, name, None)
        if function is not None:
            self._call(function, *arguments)

    def _unload(self) -> None:
        self._model = None
        self._is_warm = False
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.close()
        self._code.unload()


class PythonExecutor:
    """One lane of a model's instance: hands batches to the model's code and checks what comes back."""

    def __init__(self, spec: ModelSpec, shared: SharedModel) -> None:
        self._spec = spec
        self._shared = shared
        self._is_loaded = False

    def load(self) -> None:
        """Import the code and make the model, or share the one that another lane made.

        Raises:
            LoadError: The code fails, or has not the form of a model; names the user's file and line.
        """
        self._shared.acquire()
        self._is_loaded = True

    def warm_up(self, sizes: Sequence[int]) -> None:
        """Call the model's ``warm_up``, if it has one: made-up rows might mean something to code. Raises LoadError."""
        self._shared.warm_up(sizes)

    def run(self, inputs: Tensors, rows: int) -> Tensors:
        """Let the model compute one batch.

        Raises:
            ExecutionError: The code failed, or what it returned is not what the configuration declares.
        """
        answer = self._shared.execute({name: _read_only(array) for name, array in inputs.items()})
        if not isinstance(answer, Mapping):
            if inspect.iscoroutine(answer):
                answer.close()  # or Python warns that nobody awaited it
            raise ExecutionError(f"execute returned {_kind_of(answer)}, expected a dict of arrays by output name")
        declared = [output.name for output in self._spec.outputs]
        if answer.keys() != set(declared):
            raise ExecutionError(f"execute returned the outputs {_listed(answer)}, expected {_listed(declared)}")
        return {output.name: self._checked(output, answer[output.name], rows) for output in self._spec.outputs}

    def close(self) -> None:
        """Let go of the model; it is closed when no other lane uses it."""
        if self._is_loaded:
            self._is_loaded = False
            self._shared.release()

    def _checked(self, output: TensorSpec, found: object, rows: int) -> Array:
        if not isinstance(found, np.ndarray):
            raise ExecutionError(f"output '{output.name}' is {_kind_of(found)}, expected a numpy array")
        array = _converted(output, found)
        if not self._spec.has_batch_dimension:
            row_shape = array.shape
        elif array.ndim and array.shape[0] == rows:
            row_shape = array.shape[1:]
        else:
            found_rows = array.shape[0] if array.ndim else 0
            raise WrongRowsError(output=output.name, expected_rows=rows, found_rows=found_rows)
        if not output.accepts(row_shape):
            of = "rows of shape" if self._spec.has_batch_dimension else "the shape"
            raise ExecutionError(f"output '{output.name}' has {of} {list(row_shape)}, declared {list(output.dims)}")
        return array


def create_executors(spec: ModelSpec, placement: Placement) -> Sequence[Sequence[Executor]]:
    """For each instance a model of its own, with as many lanes as the parameter `max_in_flight` says, by default 1.

    Raises:
        LoadError: The parameter is not valid.
    """
    lanes = _lane_count(spec)
    context = _context(spec, placement)
    models = [SharedModel(spec, context, lanes=lanes) for _ in range(placement.instances)]
    return [[PythonExecutor(spec, model) for _ in range(lanes)] for model in models]


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


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


def _converted(output: TensorSpec, array: Array) -> Array:
    """The array with the declared element type; only conversions that lose nothing."""
    if output.data_type is DataType.BYTES:
        return _bytes(output, array)
    wanted = output.data_type.numpy
    if array.dtype == wanted:
        return array
    if array.dtype == np.object_ or not np.can_cast(array.dtype, wanted, "safe"):
        expected = f"{wanted} ({output.data_type.config_name}); convert it with .astype"
        raise ExecutionError(f"output '{output.name}' has elements of type {array.dtype}, expected {expected}")
    return array.astype(wanted)


def _bytes(output: TensorSpec, array: Array) -> Array:
    """An object array of ``bytes``; ``str`` is encoded as UTF-8."""
    elements: list[Any] = array.ravel().tolist()
    if all(type(element) is bytes for element in elements) and array.dtype == np.object_:
        return array
    encoded = np.empty(len(elements), np.object_)
    for index, element in enumerate(elements):
        if not isinstance(element, bytes | str):
            expected = "bytes, or str, of TYPE_STRING"
            raise ExecutionError(f"output '{output.name}' has an element {_kind_of(element)}, expected {expected}")
        encoded[index] = element.encode() if isinstance(element, str) else bytes(element)
    return encoded.reshape(array.shape)


def _kind_of(value: object) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"


def _listed(names: Any) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"
