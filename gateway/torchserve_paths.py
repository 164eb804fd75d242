"""Requests of TorchServe's own API, which is not served: what answers each of them here instead."""

import re
from typing import NamedTuple


class Moved(NamedTuple):
    """A kind of request.

    Attributes:
        method: HTTP method; empty: any.
        call: As TorchServe's documentation has it.
        instead: What does the same here, or why nothing does; ``{model}`` and ``{version}`` are those of the request.
    """

    method: str
    call: str
    instead: str


MOVED = (
    Moved("GET", "/ping", "GET /v2/health/ready"),
    Moved("", "/predictions/{model}", "POST /v2/models/{model}/infer"),
    Moved("", "/predictions/{model}/{version}", "POST /v2/models/{model}/versions/{version}/infer"),
    Moved("", "/explanations/{model}", "nothing: there are no explanations"),
    Moved("PUT", "/models/{model}", "POST /models/{model}/scale?instances=2"),
    Moved("PUT", "/models/{model}/{version}", "POST /models/{model}/scale?instances=2&version={version}"),
    Moved("PUT", "/models/{model}/{version}/set-default", "nothing: the highest number is the default"),
    Moved("POST", "/models", "POST /v2/repository/models/NAME/load, once the archive is in the model store"),
    Moved("DELETE", "/models/{model}", "POST /v2/repository/models/{model}/unload"),
    Moved("DELETE", "/models/{model}/{version}", "POST /models/{model}/scale?instances=0&version={version}"),
    Moved("GET", "/models/{model}", "GET /v2/models/{model} and GET /models/{model}/config"),
    Moved("GET", "/models/{model}/{version}", "GET /v2/models/{model}/versions/{version}"),
    Moved("", "/wfpredict/{model}", "nothing: write an ensemble, see docs/ensembles.md"),
    Moved("", "/workflows", "nothing: write an ensemble, see docs/ensembles.md"),
    Moved("GET", "/metrics", "GET /metrics on the port of --metrics-port"),
    Moved("", "/api-description", "GET /openapi.json"),
)


def hint(method: str, path: str) -> str:
    """A sentence for a request that nothing answers; empty if it is none of TorchServe's either."""
    for entry in MOVED:
        found = _PATTERNS[entry.call].fullmatch(path)
        if found is not None and entry.method in ("", method):
            instead = entry.instead
            for name, value in found.groupdict().items():
                instead = instead.replace(f"{{{name}}}", value[:256])
            return f"TorchServe's own API is not served; instead of {method} {entry.call}: {instead}"
    return ""


def _pattern(call: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(call)))


_PATTERNS = {entry.call: _pattern(entry.call) for entry in MOVED}
