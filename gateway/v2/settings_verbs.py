"""Triton's trace and log settings over HTTP."""

from collections.abc import Callable

from gateway.asgi import Headers, Receive, Reply, Scope, json_reply, read_body
from gateway.engine import Engine
from gateway.errors import InvalidSettingError
from gateway.v2.logging_settings import LogSettings, LogValue
from gateway.v2.members import JsonObject, parse_json
from gateway.v2.paths import NOT_FOUND, WRONG_METHOD
from gateway.v2.trace import TraceSettings, TraceValue
from models.errors import JsonAccessError

_MAX_BODY_BYTES = 64 << 10  # so little that it is parsed at once
_TRACE_NAMES = ("trace_level", "trace_rate", "trace_count", "log_frequency", "trace_file")


class SettingsVerbs:
    """Answers ``/v2/trace/setting``, ``/v2/models/{model}/trace/setting`` and ``/v2/logging``."""

    def __init__(self, engine: Engine, trace: TraceSettings, logs: LogSettings) -> None:
        self._engine = engine
        self._trace = trace
        self._logs = logs

    async def answer(self, path: str, scope: Scope, receive: Receive) -> Reply | None:
        """One request's answer, None when the client left before it was complete. Raises what V2_ERRORS lists."""
        if path == "/v2/trace/setting":
            return await self.trace("", scope, receive)
        return await self._answer_logs(scope, receive) if path == "/v2/logging" else NOT_FOUND

    async def trace(self, model: str, scope: Scope, receive: Receive) -> Reply | None:
        """The trace settings of a model, or of all if it is empty, changed before if it is a POST."""
        if scope["method"] not in {"GET", "POST"}:
            return WRONG_METHOD
        if model and not (model in self._engine.model_names() and self._engine.ready_versions(model)):
            raise InvalidSettingError(f"Request for unknown model : {model}")
        if scope["method"] == "GET":
            return json_reply(self._trace.read(model))
        body = await _read(scope, receive)
        return None if body is None else json_reply(self._trace.update(_trace_changes(body), model))

    async def _answer_logs(self, scope: Scope, receive: Receive) -> Reply | None:
        if scope["method"] not in {"GET", "POST"}:
            return WRONG_METHOD
        if scope["method"] == "GET":
            return json_reply(self._logs.read())
        body = await _read(scope, receive)
        return None if body is None else json_reply(self._logs.update(_log_changes(body)))


async def _read(scope: Scope, receive: Receive) -> JsonObject | None:
    headers: Headers = dict(scope["headers"])
    chunks = await read_body(receive, headers, _MAX_BODY_BYTES)
    return None if chunks is None else parse_json(b"".join(chunks))


def _trace_changes(body: JsonObject) -> dict[str, TraceValue | None]:
    changes: dict[str, TraceValue | None] = {}
    for name in _TRACE_NAMES:
        if name not in body:
            continue
        value = body[name]
        if name == "trace_file":  # of any type: it cannot be changed
            changes[name] = ""
        elif value is None:
            changes[name] = None
        else:
            changes[name] = _levels(value) if name == "trace_level" else _string(value)
    return changes


def _levels(value: object) -> list[str]:
    if not isinstance(value, list):
        raise JsonAccessError("attempt to access JSON non-array as array")
    return [_string(word) for word in value]


def _log_changes(body: JsonObject) -> dict[str, LogValue | None]:
    changes: dict[str, LogValue | None] = {}
    for name, read in _LOG_READERS.items():
        value = body.get(name)
        if value is not None:
            changes[name] = read(value)
    return changes


def _string(value: object) -> str:
    if isinstance(value, str):
        return value
    raise JsonAccessError("attempt to access JSON non-string as string")


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise JsonAccessError("attempt to access JSON non-boolean as boolean")


def _unsigned(value: object) -> int:
    if type(value) is int and value >= 0:
        return value
    raise JsonAccessError("attempt to access JSON non-unsigned-integer as unsigned-integer")


_LOG_READERS: dict[str, Callable[[object], LogValue]] = {
    "log_file": str,  # of any type: it cannot be changed
    "log_info": _boolean,
    "log_warning": _boolean,
    "log_error": _boolean,
    "log_verbose_level": _unsigned,
    "log_format": _string,
}
