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

import contextlib
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from backends.errors import ExecutionError
from backends.python_code import ModelCode, ModelContext, takes_argument
from backends.python_loop import LoopThread, thread_event_loop
from backends.python_outputs import checked_output, kind_of
from models.inference import Array, Tensors
from models.spec import ModelSpec


class SharedModel:
    """One model object for all lanes of an instance: made by the first that loads, closed by the last.

    Args:
        code: How the code of the version is read and called.
        context: Given to the model.
        lanes: How many batches may be in it at once.
    """

    def __init__(self, code: ModelCode, context: ModelContext, *, lanes: int) -> None:
        self._code = code
        self._context = context
        self._lanes = lanes
        self._lock = threading.Lock()
        self._users = 0
        self._is_warm = False
        self._model: Any = None
        self._loop: LoopThread | None = None

    @property
    def instance_name(self) -> str:
        """As in the server's log."""
        return self._context.instance_name

    @property
    def has_loop(self) -> bool:
        """Whether its functions are called in an event loop of its own, in a thread of its own."""
        return self._loop is not None

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
                self._call_if_there(self._code.close_name)
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

    def execute(self, batch: Any) -> Any:
        """What the model answers to what its code expects, unchecked. Raises ExecutionError."""
        try:
            return self._call(self._model.execute, batch)
        except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt fail the batch, too
            failure = self._code.execution_error(error)
        raise failure  # outside, because the original's traceback would keep the batch in memory

    def _load(self) -> None:
        try:
            owner = self._code.find(self._code.load())
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
        if any(inspect.iscoroutinefunction(getattr(owner, name, None)) for name in self._code.function_names):
            self._loop = LoopThread(f"{self._context.name} event loop")
            self._loop.start()

    def _create(self, owner: Any) -> None:
        try:
            self._model = self._call(self._code.create, owner, self._context)
        except BaseException as error:  # noqa: BLE001 - whatever the model raises
            failure = self._code.load_error(error)
        else:
            if takes_argument(self._model.execute):
                return
            found = f"execute{inspect.signature(self._model.execute)}"
            failure = self._code.refusal(found, f"expected one argument beside self: {self._code.signature}")
        raise failure

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
        self._surroundings = contextlib.ExitStack()

    def load(self) -> None:
        """Import the code and make the model, or share the one that another lane made.

        Raises:
            LoadError: The code fails, or has not the form of a model; names the user's file and line.
        """
        self._surroundings.enter_context(thread_event_loop())
        try:
            self._shared.acquire()
        except BaseException:
            self._surroundings.close()
            raise
        self._is_loaded = True
        if self._shared.has_loop:
            self._surroundings.close()  # its functions run elsewhere, and it may have hundreds of lanes

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
            raise ExecutionError(f"execute returned {kind_of(answer)}, expected a dict of arrays by output name")
        declared = [output.name for output in self._spec.outputs]
        if answer.keys() != set(declared):
            raise ExecutionError(f"execute returned the outputs {_listed(answer)}, expected {_listed(declared)}")
        outputs = self._spec.outputs
        return {output.name: checked_output(self._spec, output, answer[output.name], rows) for output in outputs}

    def close(self) -> None:
        """Let go of the model; it is closed when no other lane uses it."""
        if self._is_loaded:
            self._is_loaded = False
            self._shared.release()
        self._surroundings.close()


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


def _listed(names: Any) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"
