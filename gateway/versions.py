"""The version that a request names, by number or by label."""

from gateway.engine import Engine
from models.errors import MalformedRequestError

_MAX_DIGITS = 19  # of a number of 63 bits
_MAX_VERSION = 2**63 - 1


def parse_version(engine: Engine, model: str, text: str) -> int:
    """The number that a text of a request means.

    Raises:
        MalformedRequestError: A number that no version can have.
        ModelNotFoundError: A label of a model that is not known.
        VersionNotFoundError: The model has no such label.
    """
    if not (text.isascii() and text.isdigit()):
        return engine.version_number(model, text)
    digits = text.lstrip("0")
    if len(digits) > _MAX_DIGITS or int(digits or "0") > _MAX_VERSION:
        raise MalformedRequestError(
            f"failed to get model version from specified version string '{text}' (details: stol), "
            "version should be an integral value > 0"
        )
    return int(digits or "0")
