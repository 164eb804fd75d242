"""Small functions that handlers import from `ts.utils.util`, under TorchServe's names."""

import functools
import inspect
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml
from typing_extensions import override

from batching.clock import MILLISECOND_NS, MonotonicClock

logger = logging.getLogger(__name__)


class PredictionException(Exception):  # noqa: N818 - TorchServe's name
    """Raised by a handler to answer the batch's requests with a status of its own."""

    def __init__(self, message: str, error_code: int = 500) -> None:
        super().__init__(message)
        self.message = message
        self.error_code = error_code

    @override
    def __str__(self) -> str:
        return f"{self.message} : {self.error_code}"


def list_classes_from_module(module: ModuleType, parent_class: type | None = None) -> list[type]:
    """The classes that are written in a module, by name; those below `parent_class`, if it is given."""
    classes = [each for _, each in inspect.getmembers(module, inspect.isclass) if each.__module__ == module.__name__]
    return [each for each in classes if parent_class is None or issubclass(each, parent_class)]


def load_label_mapping(mapping_file_path: str) -> dict[str, str] | None:
    """Read the names of classes by index from ``index_to_name.json``.

    Accepts ``{"0": "name"}``, ``{"0": ["id", "name"]}`` and ``{"object_type_names": ["name"]}``.

    Returns:
        Names by index as text, or None if there is no such file.

    Raises:
        TypeError: The file has another form.
        ValueError: It is no JSON in UTF-8.
    """
    file = Path(mapping_file_path)
    if not file.is_file():
        logger.warning("%s is missing: answers have the numbers of classes, not their names", file.name)
        return None
    found = _json(file)
    if isinstance(found, dict) and isinstance(found.get("object_type_names"), list):
        found = {str(index): name for index, name in enumerate(found["object_type_names"])}
    if not isinstance(found, dict):
        raise TypeError(f"{file.name}: found {type(found).__name__}, expected an object of names by index")
    return {index: _label(file.name, index, value) for index, value in found.items()}


def map_class_to_label(
    probs: Sequence[Sequence[float]],
    mapping: Mapping[str, str] | None = None,
    lbl_classes: Iterable[Sequence[int]] | None = None,
) -> list[dict[str, float]]:
    """For each row, its probabilities by the names of the classes, or by their numbers without a mapping.

    Args:
        probs: For each row, one probability a class.
        mapping: Names by index as text.
        lbl_classes: For each row, the indices that its probabilities belong to; by default 0, 1, 2, ...

    Raises:
        LookupError: A class has no name in the mapping.
    """
    classes = [range(len(row)) for row in probs] if lbl_classes is None else lbl_classes
    return [
        {_name(index, mapping): value for index, value in zip(*row, strict=False)}
        for row in zip(classes, probs, strict=False)
    ]


def get_yaml_config(yaml_file_path: str) -> Any:
    """A YAML file's content."""
    return yaml.safe_load(Path(yaml_file_path).read_text(encoding="utf-8"))


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Measure a handler's method as metric ``ts_handler_<name>`` when its configuration says ``handler: profile``."""

    @functools.wraps(function)
    def measured(self: Any, *arguments: Any, **named: Any) -> Any:
        settings = getattr(self.context, "model_yaml_config", {}).get("handler")
        if not (isinstance(settings, dict) and settings.get("profile")):
            return function(self, *arguments, **named)
        clock = MonotonicClock()
        started_ns = clock.now_ns()
        result = function(self, *arguments, **named)
        duration_ms = (clock.now_ns() - started_ns) / MILLISECOND_NS
        self.context.metrics.add_time(f"ts_handler_{function.__name__}", duration_ms)
        return result

    return measured


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file.name}: found what is no JSON in UTF-8 ({error}), expected names by index") from error


def _name(index: int, mapping: Mapping[str, str] | None) -> str:
    name = str(index) if mapping is None else mapping.get(str(index))
    if name is None:
        raise LookupError(
            f"index_to_name.json has no name of class '{index}', expected one for each of the model's classes"
        )
    return name


def _label(file_name: str, index: str, value: object) -> str:
    if isinstance(value, list) and value:
        value = value[-1]
    if not isinstance(value, str):
        raise TypeError(f"{file_name}: class '{index}' is {type(value).__name__}, expected a name or a list of names")
    return value
