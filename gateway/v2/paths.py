"""Triton's paths, matched whole and as they were sent; only a model's name is percent-decoded."""

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from gateway.asgi import Scope, error_reply

NOT_FOUND = error_reply(404, "Not Found")
WRONG_METHOD = error_reply(405, "Method Not Allowed")

_MODEL_PATH = re.compile(
    r"/v2/models/([^/]+)(?:/versions/([^/]+))?(?:/(infer|generate|generate_stream|ready|config|stats))?"
    r"|/v2/models/([^/]+)/(trace/setting)"
)
_CATEGORIES = {
    "/v2": "metadata",
    "/v2/health/live": "health",
    "/v2/health/ready": "health",
    "/v2/models/stats": "statistics",
    "/v2/logging": "logging",
    "/v2/trace/setting": "trace",
}
_CATEGORIES_BELOW = {
    "/v2/repository/": "model-repository",
    "/v2/systemsharedmemory": "shared-memory",
    "/v2/cudasharedmemory": "shared-memory",
}
_CATEGORIES_OF_ACTIONS = {
    None: "metadata",
    "infer": "inference",
    "generate": "inference",
    "generate_stream": "inference",
    "ready": "health",
    "config": "model-config",
    "stats": "statistics",
    "trace/setting": "trace",
}


class ModelPath(NamedTuple):
    """A path below ``/v2/models``.

    Attributes:
        model: The model's name.
        version: The version as it was written, or None.
        action: The rest of the path, or None.
        is_labelled: The version is no number; Triton has no such paths.
    """

    model: str
    version: str | None
    action: str | None
    is_labelled: bool


@lru_cache(1024)  # a server is asked for the same few paths again and again
def parse_path(path: str) -> ModelPath | None:
    """What a path below ``/v2/models`` means, or None when it means nothing."""
    match = _MODEL_PATH.fullmatch(path)
    if match is None:
        return None
    version = match[2]
    is_number = version is None or (version.isascii() and version.isdigit())
    return ModelPath(unquote(match[1] or match[4]), version, match[3] or match[5], not is_number)


def path_of(scope: Scope) -> str:
    """The path of a request as it was sent, without the query."""
    sent: bytes | None = scope.get("raw_path")
    path: str = scope["path"]
    return path if sent is None or b"%" not in sent else sent.partition(b"?")[0].decode("latin-1")


def category_of(path: str) -> str | None:
    """What a call of the path belongs to, as `RestrictedFeatures` names it; None: there is no such path."""
    if path in _CATEGORIES:
        return _CATEGORIES[path]
    for beginning, category in _CATEGORIES_BELOW.items():
        if path.startswith(beginning):
            return category
    target = parse_path(path)
    return None if target is None else _CATEGORIES_OF_ACTIONS[target.action]
