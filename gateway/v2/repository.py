"""Triton's repository extension: which models there are, load, unload."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar
from urllib.parse import unquote

from gateway.asgi import JSON_TYPE, Offload, Receive, Reply, Scope, error_reply, json_reply, read_body
from gateway.control import IndexEntry, ModelControl, VersionState
from gateway.control_access import GuardedControl, permitted
from gateway.engine import Engine
from gateway.v2.limits import V2Limits
from gateway.v2.members import JsonObject, as_object, parse_json
from gateway.v2.paths import NOT_FOUND, WRONG_METHOD
from models.errors import JsonAccessError, LoadParameterError, MalformedRequestError, UnknownModelError
from models.model_names import is_model_name

T = TypeVar("T")

PREFIX = "/v2/repository/"
"""All paths of the extension begin so."""

_PATH = re.compile(r"/v2/repository(?:/([^/]+))?/(?:(index)|models/([^/]+)/(load|unload))")
_DONE = Reply(200, headers=(JSON_TYPE,))
_ONE_REPOSITORY = error_reply(501, "'repository_name' specification is not supported")


def _parse(body: bytes) -> JsonObject:
    return parse_json(body) if body else {}


def _parse_leniently(body: bytes) -> JsonObject:
    """Likewise; what cannot be read counts as nothing, as in Triton's unload."""
    try:
        return _parse(body)
    except MalformedRequestError:
        return {}


class RepositoryVerbs:
    """Answers below ``/v2/repository/``.

    Args:
        engine: Tells what is ready where there is no control.
        control: The verbs behind their check; None: a server that has none, as in Triton's mode ``none``.
        limits: Sizes.
        offload: Runs slow parsing in a thread.
    """

    def __init__(self, engine: Engine, control: GuardedControl | None, limits: V2Limits, *, offload: Offload) -> None:
        self._engine = engine
        self._control = control
        self._offload = offload
        self._limits = limits

    async def answer(self, path: str, scope: Scope, receive: Receive) -> Reply | None:
        """One request's answer, None when the client left before it was complete. Raises what V2_ERRORS lists."""
        target = _PATH.fullmatch(path)
        if target is None:
            return NOT_FOUND
        repository, index, model, verb = target.groups()
        if index is not None:
            return await self._index(scope, receive) if scope["method"] == "POST" else WRONG_METHOD
        if scope["method"] != "POST":
            return WRONG_METHOD
        if repository is not None:
            return _ONE_REPOSITORY
        control = permitted(self._control, scope["headers"])  # who may not do it learns nothing more
        model = unquote(model)
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
        parameters = await self._read(scope, receive, _load_parameters)
        if parameters is None:
            return None
        override = parameters.get("config")
        if override == "" or not is_model_name(model):
            raise UnknownModelError(model)
        # However long it takes, and also if the client leaves: a load that has begun is brought to its end.
        await control.load(model, override)
        return _DONE

    async def _unload(self, control: ModelControl, model: str, scope: Scope, receive: Receive) -> Reply | None:
        dependents = await self._read(scope, receive, _wants_dependents, parse=_parse_leniently)
        if dependents is None:
            return None
        if is_model_name(model):
            await control.unload(model, dependents=dependents)
        return _DONE

    async def _read(
        self,
        scope: Scope,
        receive: Receive,
        use: Callable[[JsonObject], T],
        *,
        parse: Callable[[bytes], JsonObject] = _parse,
    ) -> T | None:
        chunks = await read_body(receive, dict(scope["headers"]), self._limits.max_body_bytes)
        if chunks is None:
            return None
        body = b"".join(chunks)
        if len(body) <= self._limits.inline_bytes:
            return use(parse(body))
        return use(await self._offload(partial(parse, body)))


def _wants_ready(body: JsonObject) -> bool:
    ready = body.get("ready", False)
    if not isinstance(ready, bool):
        raise JsonAccessError("attempt to access JSON non-boolean as boolean")
    return ready


def _load_parameters(body: JsonObject) -> dict[str, str]:
    """The parameters of a load: nothing, or the configuration to load with as ``config``."""
    parameters = body.get("parameters", {})
    if not isinstance(parameters, dict):
        raise JsonAccessError("attempt to get members for non-object")
    for name, value in parameters.items():
        if name.startswith("file:"):
            raise LoadParameterError(
                f"found the load parameter '{name[:64]}', expected no files in a request: whoever could send them "
                "could run code here; put them into the repository and load the model from there"
            )
        if not isinstance(value, str):
            raise JsonAccessError("attempt to access JSON non-string as string")
        if name != "config":
            raise JsonAccessError("unexpected error on creating Triton parameter")
    return {name: value.strip() for name, value in parameters.items()}


def _wants_dependents(body: JsonObject) -> bool:
    return as_object(body.get("parameters")).get("unload_dependents") is True


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
