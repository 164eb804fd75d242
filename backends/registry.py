"""Which module executes which backend word. Engines are imported only when a model asks for them."""

import importlib
from collections.abc import Callable, Sequence
from typing import cast

from backends.errors import LoadError
from backends.ports import Executor
from models.spec import ModelSpec

ExecutorFactory = Callable[[ModelSpec, int, int], Sequence[Executor]]
"""From model version, number of executors and CPU budget in cores, to executors that are not loaded yet."""

FACTORIES = {
    "fake": "backends.fake:create_executors",
    "onnxruntime": "backends.onnx_executor:create_executors",
}
"""``module:function`` by the backend word of config.pbtxt."""


def create_executors(spec: ModelSpec, count: int, budget_cores: int) -> Sequence[Executor]:
    """One executor for each of `count` instances of a model version; what they can share, they share.

    The first call for a backend imports its engine, which may take a few tenths of a second.

    Args:
        spec: The model version.
        count: How many instances, at least 1.
        budget_cores: Cores that all of them together may use.

    Raises:
        LoadError: Unknown backend, its engine is not installed, or a parameter of the model is not valid.
    """
    try:
        module_name, function_name = FACTORIES[spec.backend].split(":")
    except KeyError:
        raise LoadError(
            f"model '{spec.name}': unknown backend '{spec.backend}', expected one of {', '.join(sorted(FACTORIES))}"
        ) from None
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise LoadError(
            f"model '{spec.name}': backend '{spec.backend}' cannot be imported ({error}); install its package"
        ) from error
    return cast("ExecutorFactory", getattr(module, function_name))(spec, count, budget_cores)
