"""What `BaseHandler` does with PyTorch: choosing the device and loading models."""

import importlib
import logging
import pickle  # noqa: TID251 - for the name of its error: nothing is unpickled
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from backends.torchserve.utilities import list_classes_from_module

logger = logging.getLogger(__name__)


def choose_device(properties: Mapping[str, Any]) -> tuple[str, Any]:
    """The GPU that the instance was given, if PyTorch can use it, else the CPU: its kind, and the device."""
    gpu_id = properties.get("gpu_id")
    if gpu_id is not None and torch.cuda.is_available():
        return "cuda", torch.device(f"cuda:{gpu_id}")
    return "cpu", torch.device("cpu")


def check_is_script(serialized_file: str | None) -> None:
    """Whether a serialized file that stands alone can be loaded. Raises RuntimeError."""
    if not serialized_file:
        raise RuntimeError("the manifest names neither a serializedFile nor a modelFile, expected a model to load")
    if not serialized_file.endswith(".pt"):
        raise RuntimeError(
            f"serializedFile is '{serialized_file}', expected TorchScript in a .pt file, or a state dict together with "
            "a modelFile; a handler may load anything else in an initialize of its own"
        )


def load_script(file: str | None, device: Any) -> Any:
    """A TorchScript file's module on the device."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer releases advise against TorchScript
        return torch.jit.load(file, map_location=device)


def load_eager(directory: str, model_file: str, state_file: str | None, device: Any) -> Any:
    """The only model class in a file, with the weights of a state dict.

    Args:
        directory: Of the archive.
        model_file: Python, in that directory.
        state_file: Path of the state dict; without one, the model keeps the weights that its class gives it.
        device: For reading the weights.

    Raises:
        RuntimeError: There is no such class, or more than a state dict in the file.
    """
    if not Path(directory, model_file).is_file():
        raise RuntimeError(f"modelFile is '{model_file}', expected a file of the archive")
    module = importlib.import_module(Path(model_file).stem)
    classes = [each for each in list_classes_from_module(module) if issubclass(each, torch.nn.Module)]
    if len(classes) != 1:
        found = ", ".join(each.__name__ for each in classes) or "none"
        raise RuntimeError(f"{model_file}: found the model classes {found}, expected exactly one")
    model = classes[0]()
    if state_file:
        model.load_state_dict(_state_dict(state_file, device))
    return model


def compiled(model: Any, config: Mapping[str, Any]) -> Any:
    """The model compiled as the entry ``pt2`` of the archive's configuration says; without one, as it is.

    Raises:
        ValueError: The entry means something that is not done here.
    """
    asked = config.get("pt2")
    if asked is None:
        return model
    options = {"backend": asked} if isinstance(asked, str) else asked
    if not isinstance(options, dict) or "export" in options:
        raise ValueError(f"pt2 is {asked!r}, expected the name of a backend of torch.compile, or its options")
    options = dict(options.get("compile", options))
    if not options.pop("enable", "compile" not in asked):
        return model
    logger.info("the model is compiled with the options %s", options or "of torch.compile's defaults")
    return torch.compile(model, **options)


def _state_dict(file: str, device: Any) -> Any:
    name = Path(file).name
    try:
        found = torch.load(file, map_location=device, weights_only=True)
    except pickle.UnpicklingError as error:
        raise RuntimeError(
            f"{name}: found more than tensors in it, expected a state dict: torch.save(model.state_dict(), '{name}')"
        ) from error
    if not isinstance(found, Mapping):
        raise TypeError(f"{name}: found {type(found).__name__}, expected a state dict")
    return found
