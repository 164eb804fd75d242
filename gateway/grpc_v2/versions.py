"""The version that a request names, by a text."""

import re
from contextlib import suppress

from gateway.engine import Engine
from models.errors import MalformedRequestError, ModelUnavailableError

_NUMBER = re.compile(r"\s*([+-]?[0-9]+)")
_MAX_VERSION = 2**63 - 1


def parse_version(engine: Engine, model: str, text: str) -> int | None:
    """The number that a text means; None for an empty one, which means the default.

    As Triton reads it: a number with whatever behind it. Labels are our own.

    Raises:
        MalformedRequestError: It is no number, no label, or no number that a version can have.
    """
    if not text:
        return None
    match = _NUMBER.match(text)
    if match is None:
        with suppress(ModelUnavailableError):
            return engine.version_number(model, text)
    elif len(match[1]) < 20 and abs(int(match[1])) <= _MAX_VERSION:
        return _checked(int(match[1]), text)
    raise MalformedRequestError(
        f"failed to get model version from specified version string '{text[:256]}' (details: stol), version should be "
        "an integral value > 0"
    )


def _checked(number: int, text: str) -> int:
    if number < 0:
        raise MalformedRequestError(
            f"invalid model version specified '{text}' , version should be an integral value > 0"
        )
    return number
