"""TorchServe's built-in handlers: which one is served, and that the others are not."""

import difflib
from pathlib import Path

from models.archives.manifest import Manifest, handler_of
from models.errors import ConfigError

_SERVED = "image_classifier"
_NOT_SERVED = (
    "base_handler",
    "image_segmenter",
    "object_detector",
    "text_classifier",
    "text_handler",
    "vision_handler",
)
_ADVICE = "pack a handler of your own, a .py file; its class may stand below ts.torch_handler's BaseHandler"


def check_handler(manifest: Manifest, directory: Path) -> None:
    """The handler is a file, or the built-in one that is served.

    Args:
        manifest: Of the archive; that files it names are there is checked elsewhere.
        directory: Of the archive's files.

    Raises:
        ConfigError: It is another name.
    """
    name = handler_of(manifest, directory)
    if name == _SERVED or name.partition(":")[0].endswith(".py"):
        return
    is_known = name in _NOT_SERVED
    near = [] if is_known else difflib.get_close_matches(name, (_SERVED,), n=1)
    line = manifest.place_of("handler").partition(":")[2]
    raise ConfigError(
        source=manifest.source,
        line=int(line) if line else None,
        field="model.handler",
        found=f"TorchServe's built-in handler '{name}'" if is_known else f"'{name}', which is no file of the archive",
        expected=f"'{_SERVED}', the only built-in one that is served, or a file"
        + (f"; did you mean '{_SERVED}'?" if near else f"; {_ADVICE}"),
    )
