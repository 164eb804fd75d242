"""TorchServe's `BaseHandler`: loads what the manifest names and hands each batch through four methods.

Needs PyTorch only where a method does that is not overridden.
"""

from abc import ABC
from pathlib import Path
from typing import Any

from backends.torchserve.context import Context
from backends.torchserve.utilities import load_label_mapping, timed
from batching.clock import MILLISECOND_NS, MonotonicClock


class BaseHandler(ABC):  # noqa: B024 - handlers override what they need
    """Base of TorchServe's handlers, under its names.

    Attributes:
        model: Set by `initialize`.
        mapping: Names of classes by index as text, from ``index_to_name.json``, or None.
        device: A ``torch.device``: the GPU that the instance was given, else the CPU.
        map_location: ``cuda`` or ``cpu``.
        manifest: As in the context.
        model_pt_path: Of the serialized file, or None.
        initialized: `initialize` has run.
        context: That of the running batch.
    """

    def __init__(self) -> None:
        self.model: Any = None
        self.mapping: dict[str, str] | None = None
        self.device: Any = None
        self.map_location: str | None = None
        self.manifest: Any = None
        self.model_pt_path: str | None = None
        self.model_yaml_config: Any = {}
        self.initialized = False
        self.context: Any = None
        self.explain = False
        self.target = 0
        self.profiler_args: dict[str, Any] = {}

    def initialize(self, context: Context) -> None:
        """Load the model and the names of its classes.

        Args:
            context: With the manifest, whose ``modelFile`` and ``serializedFile`` make an eager model, and a
                ``serializedFile`` alone is TorchScript.

        Raises:
            RuntimeError: There is no such model, or one of a form that is not loaded here.
        """
        from backends.torchserve import torch_models  # noqa: PLC0415 - a handler that overrides this needs no PyTorch

        self.manifest = context.manifest
        self.model_yaml_config = context.model_yaml_config
        self.map_location, self.device = torch_models.choose_device(context.system_properties)
        directory = context.system_properties["model_dir"]
        described = self.manifest["model"]
        serialized = described.get("serializedFile")
        self.model_pt_path = str(Path(directory, serialized)) if serialized else None
        if described.get("modelFile"):
            model = self._load_pickled_model(directory, described["modelFile"], self.model_pt_path)
            model.to(self.device)
        else:
            torch_models.check_is_script(serialized)
            model = self._load_torchscript_model(self.model_pt_path)
        model.eval()
        self.model = torch_models.compiled(model, self.model_yaml_config)
        self.mapping = load_label_mapping(str(Path(directory, "index_to_name.json")))
        self.initialized = True

    def _load_torchscript_model(self, model_pt_path: str | None) -> Any:
        """Load TorchScript. Handlers may override it."""
        from backends.torchserve import torch_models  # noqa: PLC0415 - see `initialize`

        return torch_models.load_script(model_pt_path, self.device)

    def _load_pickled_model(self, model_dir: str, model_file: str, model_pt_path: str | None) -> Any:
        """Make the model of the class in `model_file`, with the state dict of the other. Handlers may override it."""
        from backends.torchserve import torch_models  # noqa: PLC0415 - see `initialize`

        return torch_models.load_eager(model_dir, model_file, model_pt_path, self.device)

    @timed
    def preprocess(self, data: Any) -> Any:
        """The rows as one tensor on the device; they must be numbers. Most handlers override it."""
        import torch  # noqa: PLC0415 - see `initialize`

        return torch.as_tensor(data, device=self.device)

    @timed
    def inference(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        """What the model answers to a tensor, computed without gradients."""
        import torch  # noqa: PLC0415 - see `initialize`

        with torch.inference_mode():
            return self.model(data.to(self.device), *args, **kwargs)

    @timed
    def postprocess(self, data: Any) -> Any:
        """The tensor as a list with one element a row."""
        return data.tolist()

    def handle(self, data: Any, context: Context) -> Any:
        """Answer one batch: `preprocess`, `inference`, `postprocess`."""
        clock = MonotonicClock()
        started_ns = clock.now_ns()
        self.context = context
        answers = self._answers(data)
        duration_ms = (clock.now_ns() - started_ns) / MILLISECOND_NS
        context.metrics.add_time("HandlerTime", round(duration_ms, 2), None, "ms")
        return answers

    def explain_handle(self, data_preprocess: Any, raw_data: Any) -> Any:
        """Answer a request with the header ``explain``, by the handler's own ``get_insights``."""
        row = raw_data[0]
        inputs = row.get("data") or row.get("body")
        self.target = row.get("target") or 0
        insights = getattr(self, "get_insights", None)
        if insights is None:
            raise NotImplementedError("the handler has no method get_insights(data, inputs, target) to explain with")
        return insights(data_preprocess, inputs, self.target)

    def describe_handle(self) -> Any:
        """Answer a request with the header ``describe``. Handlers may override it."""
        return None

    def get_device(self) -> Any:
        """The device."""
        return self.device

    def _answers(self, data: Any) -> Any:
        if self.context.get_request_header(0, "describe") == "True":
            return [self.describe_handle()]
        self.explain = self.context.get_request_header(0, "explain") == "True"
        prepared = self.preprocess(data)
        if self.explain:
            return self.explain_handle(prepared, data)
        return self.postprocess(self.inference(prepared))
