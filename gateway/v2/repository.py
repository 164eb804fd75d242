"""Triton's repository extension: which models there are, load, unload."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from gateway.asgi import Offload, Receive, Reply, Scope, error_reply, json_reply, receive_body
from gateway.control import IndexEntry, ModelControl, VersionState
from gateway.control_access import GuardedControl, permitted
from gateway.engine import Engine
from gateway.v2.members import JsonObject, optional, parse_json, wrong_kind
from models.errors import InvalidRequestError, LoadParameterError, MalformedRequestError
from models.model_names import NAME_RULE, is_model_name

T = TypeVar("T")

PREFIX = "/v2/repository/"
"""All paths of the extension begin so."""

_PATH = re.compile(r"/v2/repository(?:/([^/]+))?/(?:(index)|models/([^/]+)/(load|unload))")
_NOT_FOUND = error_reply(404, "Not Found")
_WRONG_METHOD = error_reply(405, "Method Not Allowed")
_ONE_REPOSITORY = error_reply(501, "'repository_name' specification is not supported")


class RepositoryVerbs:
    """Answers below ``/v2/repository/``.

    Args:
        engine: Tells what is ready where there is no control.
        control: The verbs behind their check; None: a server that has none, as in Triton's mode ``none``.
        offload: Runs slow parsing in a thread.
        max_body_bytes: Largest body.
        inline_bytes: Largest body that is parsed on the event loop.
    """

    def __init__(
        self,
        engine: Engine,
        control: GuardedControl | None,
        *,
        offload: Offload,
        max_body_bytes: int,
        inline_bytes: int,
    ) -> None:
        self._engine = engine
        self._control = control
        self._offload = offload
        self._max_body_bytes = max_body_bytes
        self._inline_bytes = inline_bytes

    async def answer(self, scope: Scope, receive: Receive) -> Reply | None:
        """One request's answer, None when the client left before it was complete. Raises what V2_ERRORS lists."""
        target = _PATH.fullmatch(scope["path"])
        if target is None:
            return _NOT_FOUND
        repository, index, model, verb = target.groups()
        if index is not None:
            return await self._index(scope, receive) if scope["method"] == "POST" else _WRONG_METHOD
        control = permitted(self._control, scope["headers"])  # who may not do it learns nothing more
        if scope["method"] != "POST":
            return _WRONG_METHOD
        if repository is not None:
            return _ONE_REPOSITORY
        _check_name(model)
        return await (self._load if verb == "load" else self._unload)(control, model, scope, receive)

    async def _index(self, scope: Scope, receive: Receive) -> Reply | None:
        only_ready = await self._read(scope, receive, _wants_ready)
        if only_ready is None:
            return None
        entries = self._served() if self._control is None else await self._control.index()
        return json_reply([_entry(entry) for entry in entries if entry.state is VersionState.READY or not only_ready])

    def _served(self) -> Sequence[IndexEntry]:
        return [
            IndexEntry(model, version, VersionState.READY)
            for model in self._engine.model_names()
            for version in self._engine.ready_versions(model)
        ]

    async def _load(self, control: ModelControl, model: str, scope: Scope, receive: Receive) -> Reply | None:
        override = await self._read(scope, receive, _override)
        if override is None:
            return None
        # However long it takes, and also if the client leaves: a load that has begun is brought to its end.
        await control.load(model, override or None)
        return Reply(200)

    async def _unload(self, control: ModelControl, model: str, scope: Scope, receive: Receive) -> Reply | None:
        dependents = await self._read(scope, receive, _wants_dependents)
        if dependents is None:
            return None
        await control.unload(model, dependents=dependents)
        return Reply(200)

    async def _read(self, scope: Scope, receive: Receive, parse: Callable[[JsonObject], T]) -> T | None:
        chunks = await receive_body(receive, dict(scope["headers"]), self._max_body_bytes, self._offload)
        if chunks is None:
            return None
        body = b"".join(chunks)
        read = partial(_parse, body, parse)
        return read() if len(body) <= self._inline_bytes else await self._offload(read)


def _parse(body: bytes, parse: Callable[[JsonObject], T]) -> T:
    return parse(parse_json(body) if body.strip() else {})


def _check_name(model: str) -> None:
    if not is_model_name(model):
        raise InvalidRequestError(f"found the model name {model[:256]!r}, expected {NAME_RULE}")


def _wants_ready(body: JsonObject) -> bool:
    ready = body.get("ready", False)
    if not isinstance(ready, bool):
        raise MalformedRequestError("Invalid value for 'ready': expected a boolean", pointer="/ready")
    return ready


def _override(body: JsonObject) -> str:
    """The configuration to load with, or an empty text."""
    parameters = optional(body, "parameters", dict, {}, "")
    for name, value in parameters.items():
        if name.startswith("file:"):
            raise LoadParameterError(
                f"found the load parameter '{name[:64]}', expected no files in a request: whoever could send them "
                "could run code here; put them into the repository and load the model from there"
            )
        if name != "config":
            raise LoadParameterError(f"unrecognized load parameter '{name[:64]}', expected 'config'")
        if not isinstance(value, str):
            raise wrong_kind(name, value, "string", "/parameters/config")
        if not value.strip():
            raise LoadParameterError("found an empty 'config', expected a model configuration in JSON")
    return str(parameters.get("config", ""))


def _wants_dependents(body: JsonObject) -> bool:
    parameters: JsonObject = optional(body, "parameters", dict, {}, "")
    return optional(parameters, "unload_dependents", bool, default=False, pointer="/parameters")


def _entry(entry: IndexEntry) -> JsonObject:
    """As Triton writes it: what is not known is left out."""
    shown: JsonObject = {"name": entry.model}
    if entry.version is not None:
        shown["version"] = str(entry.version)
    if entry.state is not None:
        shown["state"] = entry.state.value
    if entry.reason:
        shown["reason"] = entry.reason
    return shown
