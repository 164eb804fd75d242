"""The package `ts` that handlers import from, made of modules of this package where TorchServe is not installed.

It exists in worker processes only, once a handler is loaded there, and comes after everything else that could be
imported under that name: an installed TorchServe, or a package `ts` of the archive.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

from typing_extensions import override

from backends.torchserve.base_handler import BaseHandler
from backends.torchserve.context import Context, RequestProcessor
from backends.torchserve.metrics import Dimension, HandlerMetrics, MetricTypes
from backends.torchserve.utilities import (
    PredictionException,
    get_yaml_config,
    list_classes_from_module,
    load_label_mapping,
    map_class_to_label,
    timed,
)

VERSION = "0.12.0"
"""The release of TorchServe whose names and rules these are."""


def install() -> None:
    """Make `ts` importable, as the last resort. Safe to call twice."""
    if _FINDER not in sys.meta_path:
        sys.meta_path.append(_FINDER)


def uninstall() -> None:
    """Forget the package. Safe to call twice."""
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)
    for name in [name for name, module in sys.modules.items() if _is_ours(module)]:
        del sys.modules[name]


class _Finder(MetaPathFinder, Loader):
    """Finds and makes the modules of `_CONTENTS` and `_LAZY`."""

    @override
    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        parent = name.rpartition(".")[0]
        if name.partition(".")[0] != "ts" or (parent and not _is_ours(sys.modules.get(parent))):
            return None
        if name in _CONTENTS or name in _LAZY or _is_package(name):
            return ModuleSpec(name, self, origin="shoal", is_package=_is_package(name))
        raise ModuleNotFoundError(
            f"TorchServe's module '{name}' is not among those that are here; install the package torchserve to have it",
            name=name,
        )

    @override
    def create_module(self, spec: ModuleSpec) -> None:
        """A plain module will do."""

    @override
    def exec_module(self, module: ModuleType) -> None:
        make = _LAZY.get(module.__name__)
        module.__dict__.update(_CONTENTS.get(module.__name__, {}) if make is None else make())


def _vision_handler() -> Mapping[str, Any]:
    from backends.torchserve.vision_handler import VisionHandler  # noqa: PLC0415 - needs PyTorch

    return {"VisionHandler": VisionHandler}


def _image_classifier() -> Mapping[str, Any]:
    from backends.torchserve.image_classifier import ImageClassifier  # noqa: PLC0415 - needs PyTorch

    return {"ImageClassifier": ImageClassifier}


def _refuse_streaming(*_arguments: object, **_named: object) -> NoReturn:
    raise NotImplementedError("answers of handlers are not streamed: return the whole answer")


_STREAMING = {"send_intermediate_predict_response": _refuse_streaming}

_CONTENTS: Mapping[str, Mapping[str, Any]] = {
    "ts": {"__version__": VERSION},
    "ts.context": {"Context": Context, "RequestProcessor": RequestProcessor},
    "ts.handler_utils.timer": {"timed": timed},
    "ts.handler_utils.utils": _STREAMING,
    "ts.metrics.dimension": {"Dimension": Dimension},
    "ts.metrics.metric_type_enum": {"MetricTypes": MetricTypes},
    "ts.metrics.metrics_store": {"MetricsStore": HandlerMetrics},
    "ts.protocol.otf_message_handler": _STREAMING,
    "ts.torch_handler.base_handler": {"BaseHandler": BaseHandler, "IPEX_AVAILABLE": False, "XLA_AVAILABLE": False},
    "ts.utils.util": {
        "PredictionException": PredictionException,
        "get_yaml_config": get_yaml_config,
        "list_classes_from_module": list_classes_from_module,
        "load_label_mapping": load_label_mapping,
        "map_class_to_label": map_class_to_label,
    },
}
_LAZY: Mapping[str, Callable[[], Mapping[str, Any]]] = {
    "ts.torch_handler.image_classifier": _image_classifier,
    "ts.torch_handler.vision_handler": _vision_handler,
}

_FINDER = _Finder()


def _is_package(name: str) -> bool:
    return any(each.startswith(f"{name}.") for each in (*_CONTENTS, *_LAZY))


def _is_ours(module: ModuleType | None) -> bool:
    return getattr(getattr(module, "__spec__", None), "loader", None) is _FINDER
