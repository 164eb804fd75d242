"""Model files become modules: TorchScript, torch.export programs, state dicts, torchvision's models."""

import contextlib
import importlib.util
import inspect
import logging
import os
import re
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from backends.errors import LoadError
from backends.torch_engine.failures import clean_text
from backends.torch_engine.formats import Format, check_exported, detect_format, untrusted
from backends.torch_engine.parameters import Optimize, TorchParameters
from models.spec import ModelSpec

logger = logging.getLogger(__name__)

_LOADING = threading.Lock()  # files are read under settings of the whole process: warnings, an environment variable
_FORCE_WEIGHTS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_FORBIDDEN_GLOBAL = re.compile(r"GLOBAL (\S+)")
_WRAPPERS = ("state_dict", "model_state_dict", "model")  # keys under which training scripts keep the state dict


@dataclass(frozen=True, slots=True)
class LoadedModule:
    """A module that can be called.

    Attributes:
        module: In evaluation mode, on its device.
        arguments: Names of the arguments of its `forward`, without `self`.
        keyword_only: Those of them that have to be given by name.
        is_script: It is TorchScript.
    """

    module: Any
    arguments: tuple[str, ...]
    keyword_only: tuple[str, ...] = ()
    is_script: bool = False


def load_module(spec: ModelSpec, parameters: TorchParameters, device: str, *, trust_pickles: bool) -> LoadedModule:
    """Read a model's file and move it to the device.

    Args:
        spec: The model version.
        parameters: Its parameters.
        device: As PyTorch names it.
        trust_pickles: Whether files may be read that can run any code meanwhile.

    Raises:
        LoadError: It cannot be loaded; says what was found, what was expected and what to do.
    """
    where = f"model '{spec.name}' version {spec.version}"
    try:
        with _LOADING, _quiet(), _only_weights(not trust_pickles):
            return _Loader(spec, parameters, device, where, trust_pickles).load()
    except LoadError:
        raise
    except Exception as error:
        if type(error).__name__ == "UnpicklingError" and not trust_pickles:
            forbidden = _FORBIDDEN_GLOBAL.search(str(error))
            found = f"objects that are no tensors ({forbidden[1]})" if forbidden else "more than tensors"
            raise untrusted(spec.file, where, found) from error
        raise LoadError(f"{where}: {type(error).__name__}: {clean_text(str(error))}") from error


class _Loader:
    """One attempt to load one model."""

    def __init__(self, spec: ModelSpec, parameters: TorchParameters, device: str, where: str, trusted: bool) -> None:
        self._file = spec.file
        self._directory = spec.file if spec.file.is_dir() else spec.file.parent
        self._spec = spec
        self._parameters = parameters
        self._device = device
        self._where = where
        self._trusted = trusted

    def load(self) -> LoadedModule:
        if not self._file.is_file():
            return self._placed(self._without_weights())
        found = detect_format(self._file, self._where)
        if found is Format.PICKLED:
            return self._placed(self._from_pickle())
        if self._parameters.model_class or self._parameters.torchvision_model:
            raise LoadError(
                f"{self._where}: {self._file.name} is {found.value}, which is a whole model; expected a state dict for "
                "parameter 'model_class' or 'torchvision_model', or neither parameter"
            )
        return self._script() if found is Format.TORCHSCRIPT else self._exported()

    def _script(self) -> LoadedModule:
        if self._parameters.compile_mode is not None:
            raise LoadError(
                f"{self._where}: parameter 'compile' does not apply to {Format.TORCHSCRIPT.value}; remove it, or save "
                "the model with torch.export, or as a state dict"
            )
        module = torch.jit.load(str(self._file), map_location=self._device)
        if hasattr(module, "training"):  # one that was saved frozen has lost it
            module = self._optimized(self._formatted(module.eval()))
        names = tuple(argument.name for argument in module.forward.schema.arguments[1:])
        return LoadedModule(module, names, is_script=True)

    def _optimized(self, module: Any) -> Any:
        if self._parameters.optimize is Optimize.NONE:
            return module
        module = torch.jit.freeze(module)
        return torch.jit.optimize_for_inference(module) if self._parameters.optimize is Optimize.INFERENCE else module

    def _exported(self) -> LoadedModule:
        if not self._trusted:
            check_exported(self._file, self._where)
        with self._file.open("rb") as stream:  # a path would have to end in .pt2
            program = torch.export.load(stream)
        if self._device != "cpu":
            from torch.export.passes import move_to_device_pass  # noqa: PLC0415 - new names: needed on GPUs only

            program = move_to_device_pass(program, self._device)
        module = self._formatted(program.module())
        _, by_name = program.call_spec.in_spec.unflatten(range(program.call_spec.in_spec.num_leaves))
        return LoadedModule(module, _arguments(module), tuple(by_name))

    def _from_pickle(self) -> Any:
        with self._user_code():
            content = torch.load(self._file, map_location="cpu", weights_only=not self._trusted)
        if isinstance(content, torch.nn.Module):
            return content
        state = _state_dict(content)
        if state is None:
            raise LoadError(f"{self._where}: {self._file.name} holds a {type(content).__name__}, expected a state dict")
        module = self._built()
        try:
            module.load_state_dict(state)
        except RuntimeError as error:
            raise LoadError(
                f"{self._where}: the state dict in {self._file.name} does not fit the model: {clean_text(str(error))}"
            ) from error
        return module

    def _without_weights(self) -> Any:
        if not self._parameters.torchvision_model:
            raise LoadError(
                f"{self._where}: found no file {self._file.name}, expected {', '.join(kind.value for kind in Format)}, "
                "or parameter 'torchvision_model'"
            )
        logger.warning("%s: found no file with weights: they are random, answers mean nothing", self._where)
        return self._built()

    def _built(self) -> Any:
        if self._parameters.torchvision_model:
            return self._from_torchvision(self._parameters.torchvision_model)
        if self._parameters.model_class:
            return self._from_code(self._parameters.model_class)
        raise LoadError(
            f"{self._where}: {self._file.name} is a state dict, which needs its model: give parameter 'model_class' "
            "(e.g. model.py:Net, a file beside it) or 'torchvision_model' (e.g. resnet50)"
        )

    def _from_torchvision(self, name: str) -> Any:
        from torchvision import models  # noqa: PLC0415 - an optional package, and half a second

        if name not in models.list_models():
            raise LoadError(
                f"{self._where}: parameter 'torchvision_model' is '{name}', expected one of torchvision.models, e.g. "
                "resnet50, efficientnet_b0, mobilenet_v3_small, vit_b_16"
            )
        arguments = {"weights": None, **self._parameters.model_arguments}
        if "weights_backbone" in inspect.signature(models.get_model_builder(name)).parameters:
            arguments.setdefault("weights_backbone", None)  # else some models would download theirs
        return models.get_model(name, **arguments)

    def _from_code(self, target: str) -> Any:
        file_name, colon, class_name = target.partition(":")
        file = self._directory / file_name
        is_inside = file.resolve().is_relative_to(self._directory.resolve())
        if not (colon and class_name and file_name.endswith(".py") and is_inside and file.is_file()):
            raise LoadError(
                f"{self._where}: parameter 'model_class' is '{target}', expected a file in the version directory and a "
                "class in it, e.g. model.py:Net"
            )
        with self._user_code():
            module = _import_file(file, f"shoal_{self._spec.name}_{self._spec.version}_{file.stem}")
            build = getattr(module, class_name, None)
            if not callable(build):
                raise LoadError(f"{self._where}: {file_name} has no class '{class_name}' (parameter 'model_class')")
            return build(**self._parameters.model_arguments)

    def _placed(self, module: Any) -> LoadedModule:
        if not isinstance(module, torch.nn.Module):
            raise LoadError(f"{self._where}: found a {type(module).__name__}, expected a torch.nn.Module")
        module = self._formatted(module.to(self._device).eval())
        return LoadedModule(module, _arguments(module), _arguments(module, inspect.Parameter.KEYWORD_ONLY))

    def _formatted(self, module: Any) -> Any:
        return module.to(memory_format=torch.channels_last) if self._parameters.channels_last else module

    @contextlib.contextmanager
    def _user_code(self) -> Iterator[None]:
        """Lets files beside the model be imported."""
        directory = str(self._directory.absolute())
        sys.path.insert(0, directory)
        try:
            yield
        finally:
            with contextlib.suppress(ValueError):  # the imported code may have removed it
                sys.path.remove(directory)


_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _arguments(module: Any, *kinds: Any) -> tuple[str, ...]:
    arguments = inspect.signature(module.forward).parameters.values()
    return tuple(argument.name for argument in arguments if argument.kind in (kinds or _NAMED))


def _state_dict(content: object) -> Mapping[str, Any] | None:
    """The state dict in what a training script saved, without the prefix that DataParallel puts before its names."""
    if not isinstance(content, Mapping):
        return None
    for key in _WRAPPERS:
        inner = content.get(key)
        if isinstance(inner, Mapping):
            return _state_dict(inner)
    if not content or not all(isinstance(name, str) for name in content):
        return None
    is_wrapped = all(name.startswith("module.") for name in content)
    return {name.removeprefix("module."): value for name, value in content.items()} if is_wrapped else content


def _import_file(file: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise LoadError(f"{file.name} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look their module up there
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """PyTorch calls TorchScript deprecated each time; whoever serves a model can do nothing about it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*torch\.jit\..* is deprecated", category=FutureWarning)
        warnings.filterwarnings("ignore", message=r".*torch\.jit\..* is deprecated", category=DeprecationWarning)
        yield


@contextlib.contextmanager
def _only_weights(is_forced: bool) -> Iterator[None]:
    """PyTorch's own switch: torch.export.load unpickles anything otherwise."""
    before = os.environ.get(_FORCE_WEIGHTS_ONLY)
    if is_forced:
        os.environ[_FORCE_WEIGHTS_ONLY] = "1"
    try:
        yield
    finally:
        if is_forced and before is None:
            del os.environ[_FORCE_WEIGHTS_ONLY]
        elif before is not None:
            os.environ[_FORCE_WEIGHTS_ONLY] = before
