"""Which code a manifest's `handler` means, and how it is called. After TorchServe's rules."""

import difflib
import inspect
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from typing_extensions import override

from backends.errors import LoadError
from backends.python_code import UserCode
from backends.torchserve.context import Context
from backends.torchserve.utilities import list_classes_from_module
from models.spec import ModelSpec

logger = logging.getLogger(__name__)

_CLASSIFIER = "image_classifier"
_REFUSED = ("base_handler", "image_segmenter", "object_detector", "text_classifier")
_EXPECTED = "expected a function handle(data, context), or one class with the methods initialize and handle"
_TORCH = ("torch", "torchvision")


class Handler(NamedTuple):
    """What is called.

    Attributes:
        initialize: Once, before the first batch.
        handle: With each batch: a list of rows, and the context.
    """

    initialize: Callable[[Context], object]
    handle: Callable[[Any, Context], object]


class HandlerCode:
    """The code of one archive.

    Args:
        spec: The model version; the parameter ``handler`` is the manifest's text.
        directory: Of the archive's files.
    """

    def __init__(self, spec: ModelSpec, directory: Path) -> None:
        self._spec = spec
        self._text = spec.parameters.get("handler", "")
        file_name, _, self._function = self._text.partition(":")
        stem = Path(file_name).name.removesuffix(".py")
        self._file = directory / f"{stem}.py"
        self._is_built_in = not self._file.is_file() and stem == file_name
        # The name by which the archive's other modules know it, unless that name is taken.
        name = "" if stem in sys.modules else stem
        self.code = _Code(spec) if self._is_built_in else _Code(spec, file=self._file, module_name=name)

    def load(self) -> Handler:
        """Import the code and find what is called in it.

        Raises:
            LoadError: There is no such code, it cannot be imported, or it has not the parts of a handler.
        """
        if self._is_built_in:
            return self._built_in()
        if not self._file.is_file():
            raise UserCode(self._spec).refusal(f"the handler '{self._text}'", f"expected a file {self._file.name}")
        module = self.code.load()
        name = self._function or "handle"
        function = getattr(module, name, None)
        if callable(function) and not inspect.isclass(function):
            return Handler(lambda context: function(None, context), function)
        if self._function:
            logger.warning("%s has no function %s, so its class is the handler", self._file.name, name)
        return self._of_class(module)

    def _of_class(self, module: ModuleType) -> Handler:
        found = [each for each in list_classes_from_module(module) if _is_handler(each)]
        bases = {base for each in found for base in each.__mro__[1:]}
        handlers = [each for each in found if each not in bases]
        if len(handlers) != 1:
            names = ", ".join(each.__name__ for each in handlers)
            text = f"no single handler: the handler classes {names}" if names else f"no {self._function or 'handler'}"
            raise self.code.refusal(text, _EXPECTED)
        return self._made(handlers[0])

    def _built_in(self) -> Handler:
        if self._text != _CLASSIFIER:
            near = difflib.get_close_matches(self._text, (_CLASSIFIER,), n=1)
            advice = f"did you mean '{_CLASSIFIER}'?" if near else "pack a handler of your own: a .py file"
            known = "TorchServe's built-in handler" if self._text in _REFUSED else "the handler"
            expected = f"expected '{_CLASSIFIER}', the only built-in one that is served, or a file; {advice}"
            raise self.code.refusal(f"{known} '{self._text}'", expected)
        try:
            from backends.torchserve.image_classifier import ImageClassifier  # noqa: PLC0415 - needs PyTorch
        except ImportError as error:
            failure = self.code.load_error(error)
        else:
            return self._made(ImageClassifier)
        raise failure

    def _made(self, handler_class: type[Any]) -> Handler:
        try:
            handler = handler_class()
        except BaseException as error:  # noqa: BLE001 - whatever the handler raises
            failure = self.code.load_error(error)
        else:
            return Handler(handler.initialize, handler.handle)
        raise failure


class _Code(UserCode):
    """The handler's module."""

    @override
    def load_error(self, error: BaseException) -> LoadError:
        if isinstance(error, ImportError) and error.name in _TORCH:
            return LoadError(f"{super().load_error(error)}; install it beside the server: pip install {error.name}")
        return super().load_error(error)


def _is_handler(found: type) -> bool:
    return all(callable(getattr(found, name, None)) for name in ("initialize", "handle"))
