"""The code of a ``TritonPythonModel``: finding the class, making the model, and the module that it imports."""

import inspect
import json
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from typing_extensions import override

from backends.python_code import ModelCode, ModelContext
from backends.triton_python import pb_utils
from models.spec import ModelSpec

MODULE_NAME = "triton_python_backend_utils"
"""What such code imports. It can be imported while a model is loaded, in the process that loads it."""

MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
"""In parameters: the model's directory."""


class TritonCode(ModelCode):
    """Code that has the form of Triton's python backend.

    Args:
        spec: The model version; `file` is the code.
    """

    signature = "execute(self, requests)"
    close_name = "finalize"
    function_names = ("execute", "finalize")
    foreign_imports: Mapping[str, tuple[str, str]] = {}

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        self._spec = spec
        self._instance_name = spec.name

    @override
    def load(self) -> ModuleType:
        """Import the file, which then finds `pb_utils` under Triton's name. Raises LoadError."""
        # Before a file of the same name beside the model, which people keep for their editors.
        sys.modules[MODULE_NAME] = _module()
        return super().load()

    @override
    def unload(self) -> None:
        """Forget the module and Triton's. Safe to call twice."""
        super().unload()
        sys.modules.pop(MODULE_NAME, None)

    @override
    def find(self, module: ModuleType) -> Any:
        """The class ``TritonPythonModel``. Raises LoadError."""
        owner = getattr(module, "TritonPythonModel", None)
        if not inspect.isclass(owner) or not callable(getattr(owner, "execute", None)):
            found = "no class TritonPythonModel" if owner is None else "a TritonPythonModel without execute"
            raise self.refusal(found, f"expected a class TritonPythonModel with a method {self.signature}")
        if inspect.iscoroutinefunction(getattr(owner, "initialize", None)):
            raise self.refusal("async def initialize", "expected def initialize(self, args)")
        return owner

    @override
    def create(self, owner: Any, context: ModelContext) -> Any:
        """The model, after its ``initialize``. Raises whatever the code raises."""
        self._instance_name = context.instance_name or self._instance_name
        model = owner()
        initialize = getattr(model, "initialize", None)
        if initialize is not None:
            initialize(initialize_arguments(self._spec, context))
        return model

    @override
    def worded(self, error: BaseException, text: str, place: str) -> str:
        """As Triton words an exception of ``execute``, with files named without their directories."""
        at = "".join(f"  {file}({line}): {function}\n" for file, line, function in reversed(self.frames(error)))
        where = f"\n\nAt:\n{at}" if at else ""
        return f"Failed to process the request(s) for model '{self._instance_name}', message: {text}{where}"


def _module() -> ModuleType:
    module = ModuleType(MODULE_NAME, pb_utils.__doc__)
    module.__spec__ = ModuleSpec(MODULE_NAME, None)
    vars(module).update({name: getattr(pb_utils, name) for name in pb_utils.__all__})
    return module


def initialize_arguments(spec: ModelSpec, context: ModelContext) -> dict[str, str]:
    """What Triton gives to ``initialize``: texts, all of them.

    Args:
        spec: The model version.
        context: Where it runs. The process sees one GPU at most, so that its number is 0.
    """
    directory = str(context.directory.parent)
    config = json.dumps(spec.config).replace(MODEL_DIRECTORY, json.dumps(directory)[1:-1])
    return {
        "model_config": config,
        "model_instance_kind": "CPU" if context.device == "cpu" else "GPU",
        "model_instance_name": context.instance_name,
        "model_instance_device_id": "0",
        "model_repository": directory,
        "model_version": str(spec.version),
        "model_name": spec.name,
    }
