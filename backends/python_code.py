"""The code of a python model: importing it, finding its parts, and telling its errors by the user's own lines."""

import inspect
import logging
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from backends.errors import ExecutionError, LoadError, OutOfMemoryError
from backends.failures import printable
from backends.faults import classify
from models.spec import ModelSpec

logger = logging.getLogger(__name__)

_EXPECTED = "expected a class Model with a method execute(self, inputs), or a function execute(inputs)"
_AS_CLASS = (
    "code for Triton is served when the text of model.py gives something the name TritonPythonModel: by class, "
    "assignment, or from ... import TritonPythonModel (import * does not say so)"
)
_MAX_TEXT = 2_000
_OWN = Path(__file__).parent
_AS_ARCHIVE = "a handler of TorchServe is served from its .mar archive, in a model store"
_FOREIGN_IMPORTS = {"triton_python_backend_utils": ("Triton's", _AS_CLASS), "ts": ("TorchServe's", _AS_ARCHIVE)}
_FOREIGN_NAMES = {"TritonPythonModel": ("Triton's", _AS_CLASS), "handle": ("TorchServe's", _AS_ARCHIVE)}


class TensorDescription(NamedTuple):
    """An input or output as config.pbtxt declares it, without the batch dimension; -1 is a variable dimension."""

    name: str
    datatype: str
    dtype: np.dtype[Any]
    dims: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ModelContext:
    """What a model's constructor is given.

    Attributes:
        name: The model's name.
        version: The version's number.
        directory: The version's directory, where ``model.py`` is.
        device: ``cpu``, or ``cuda:0``: the only GPU that the process sees.
        cores: CPU cores that this instance may use.
        parameters: Those of config.pbtxt.
        max_batch_size: The largest number of rows; 0 means that tensors have no batch dimension.
        inputs: In the order of config.pbtxt.
        outputs: Likewise.
        instance_name: Unique among the instances of the version, as in the server's log and metrics.
    """

    name: str
    version: int
    directory: Path
    device: str
    cores: int
    parameters: Mapping[str, str]
    max_batch_size: int
    inputs: tuple[TensorDescription, ...]
    outputs: tuple[TensorDescription, ...]
    instance_name: str = ""


class UserCode:
    """The file of one version and the modules beside it, whatever the form of the code.

    Args:
        spec: The model version.
        file: The code; by default the `file` of the version.
        module_name: Name of the module; by default one that nobody else uses, as "model" may be a module that the user
            imports.
    """

    def __init__(self, spec: ModelSpec, *, file: Path | None = None, module_name: str = "") -> None:
        self._file = (file or spec.file).absolute()
        version, model = self._file.parent, self._file.parent.parent
        self._directories = (version, version.resolve(), model, model.resolve())
        self._where = f"model '{spec.name}' version {spec.version}"
        private_name = f"shoal_model_{re.sub(r'[^a-zA-Z0-9_]', '_', spec.name)}_{spec.version}"
        self._module_name = module_name or private_name
        self._added_path = ""
        self._told: set[str] = set()

    def load(self) -> ModuleType:
        """Import the file; its directory becomes importable. Raises LoadError."""
        try:
            return self._import()
        except BaseException as error:  # noqa: BLE001 - also SystemExit, which must not end the process
            failure = self.load_error(error)
        raise failure

    def unload(self) -> None:
        """Forget the module. Modules that it imported stay, as always in Python. Safe to call twice."""
        sys.modules.pop(self._module_name, None)
        if self._added_path in sys.path:
            sys.path.remove(self._added_path)
        self._added_path = ""

    def load_error(self, error: BaseException) -> LoadError:
        """The error to raise when the model's code failed before it served."""
        return LoadError(f"{self._where}: {self.describe(error)}")

    def execution_error(self, error: BaseException) -> ExecutionError:
        """The error to raise when the model's code failed with a batch."""
        text, place = self._described(error)
        return _kind(error, text)(self.worded(error, text, place))

    def worded(self, error: BaseException, text: str, place: str) -> str:  # noqa: ARG002 - other forms look at it
        """What the caller is told of an error: its type and text, and the user's line."""
        return f"{text} (at {place})" if place else text

    def refusal(self, found: str, expected: str) -> LoadError:
        """The error to raise when the model has not the form that is expected."""
        return LoadError(f"{self._where}: {self._file.name}: found {found}, {expected}")

    def describe(self, error: BaseException) -> str:
        """On one line, without directories of this machine; the traceback is logged once for each place."""
        text, place = self._described(error)
        return f"{text} (at {place})" if place else text

    def frames(self, error: BaseException) -> list[tuple[str, int, str]]:
        """File, line and function from the user's outermost frame inwards, without directories of this machine."""
        _, start = self._place(error)
        return [
            (self._name_of(frame.filename) or self._clean(frame.filename), frame.lineno or 0, frame.name)
            for frame in traceback.extract_tb(start)
            if not Path(frame.filename).is_relative_to(_OWN)
        ]

    def _described(self, error: BaseException) -> tuple[str, str]:
        place, start = self._place(error)
        text = f"{type(error).__name__}: {self._clean(_text_of(error))}".removesuffix(": ")
        if place not in self._told:
            self._told.add(place)
            lines = traceback.format_exception(type(error), error, start)
            logger.warning("%s: %s; the traceback, told once:\n%s", self._where, text, "".join(lines).rstrip())
        return text, place

    def _import(self) -> ModuleType:
        directory = str(self._file.parent)
        if directory not in sys.path:
            sys.path.insert(0, directory)
            self._added_path = directory
        loader = _FreshLoader(self._module_name, str(self._file))
        module_spec = ModuleSpec(self._module_name, loader, origin=str(self._file))
        module_spec.has_location = True
        module = module_from_spec(module_spec)
        sys.modules[self._module_name] = module  # dataclasses and others look their module up
        try:
            loader.exec_module(module)
        except BaseException:
            self.unload()
            raise
        return module

    def _place(self, error: BaseException) -> tuple[str, TracebackType | None]:
        """The user's innermost line as ``file:line``, and the traceback from the user's outermost frame on."""
        place, start = "", None
        step = error.__traceback__
        while step is not None:
            name = self._name_of(step.tb_frame.f_code.co_filename)
            if name is not None:
                place, start = f"{name}:{step.tb_lineno}", start or step
            step = step.tb_next
        if isinstance(error, SyntaxError) and error.filename is not None:
            name = self._name_of(error.filename)
            place = place if name is None else f"{name}:{error.lineno}"
        return place, start

    def _name_of(self, source: str) -> str | None:
        """A file of the model as its user knows it; None for any other one."""
        for directory in self._directories:
            if Path(source).is_relative_to(directory):
                return Path(source).relative_to(directory).as_posix()
        return None

    def _clean(self, text: str) -> str:
        for directory in self._directories:
            if directory != directory.parent:
                named = rf"{re.escape(str(directory))}(/|(?![\w-]|\.\w))"
                text = re.sub(named, lambda found: "" if found[1] else ".", text)
        for directory in sorted(map(Path, sys.path), key=lambda path: -len(path.parts)):
            if directory.is_absolute():
                text = text.replace(f"{directory}/", "")
        return printable(" ".join(text[:_MAX_TEXT].split()))


class ModelCode(UserCode):
    """Code that has the form of docs/python-models.md.

    Attributes:
        signature: What `execute` looks like, for messages.
        close_name: The function that is called at the end.
        function_names: All functions that are called if they are there.
        foreign_imports: By module that only code for another server imports, whose it is and what to do.
    """

    signature = "execute(self, inputs)"
    close_name = "close"
    function_names: tuple[str, ...] = ("execute", "warm_up", "close")
    foreign_imports: Mapping[str, tuple[str, str]] = _FOREIGN_IMPORTS

    def find(self, module: ModuleType) -> Any:
        """The class ``Model``, or the module if the function ``execute`` stands in it. Raises LoadError."""
        for name, (whose, why) in _FOREIGN_NAMES.items():
            if hasattr(module, name) and not hasattr(module, "execute"):
                raise self.refusal(f"{whose} {name}", f"{_EXPECTED}; {why}")
        has_class, has_function = (hasattr(module, name) for name in ("Model", "execute"))
        if has_class and has_function:
            raise self.refusal("a class Model and a function execute", "expected one of them")
        owner = module.Model if has_class else module
        if not callable(getattr(owner, "execute", None)):
            raise self.refusal("a class Model without execute" if has_class else "neither of them", _EXPECTED)
        return owner

    def create(self, owner: Any, context: ModelContext) -> Any:
        """The model, of what `find` has found. Raises whatever the code raises."""
        if not inspect.isclass(owner):
            return owner
        make: Callable[..., Any] = owner
        return make(context) if takes_argument(make) else make()

    @override
    def load_error(self, error: BaseException) -> LoadError:
        """Likewise; code for another server is told by what it imports."""
        if isinstance(error, ImportError) and error.name is not None:
            whose, why = self.foreign_imports.get(error.name.partition(".")[0], ("", ""))
            if whose:
                return self.refusal(f"an import of {whose} module '{error.name}'", f"{_EXPECTED}; {why}")
        return super().load_error(error)


class _FreshLoader(SourceFileLoader):
    """Compiles always: the cache would take an edit within a second that keeps the file's size for no edit."""

    @override
    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


def takes_argument(function: Callable[..., Any]) -> bool:
    """Whether a function, or a class, can be called with one positional argument."""
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # of some that are not written in Python
        return True
    return True


def _text_of(error: BaseException) -> str:
    try:
        return error.msg if isinstance(error, SyntaxError) else str(error)
    except Exception:  # noqa: BLE001 - whatever the model's own error class does
        return "an error whose text cannot be made"


def _kind(error: BaseException, text: str) -> type[ExecutionError]:
    """What the error says of the device. Only errors of engines: others may repeat what a client has sent."""
    if isinstance(error, MemoryError):
        return OutOfMemoryError
    is_of_engine = type(error).__module__ != "builtins" or text.startswith(("RuntimeError: CUDA", "RuntimeError: cu"))
    return classify(text) if isinstance(error, RuntimeError) and is_of_engine else ExecutionError
