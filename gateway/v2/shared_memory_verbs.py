"""Triton's shared-memory extensions over HTTP: register, unregister, status."""

import re
from base64 import b64decode
from collections.abc import Callable

from gateway.asgi import JSON_TYPE, Offload, Receive, Reply, Scope, error_reply, json_reply, receive_body
from gateway.errors import ForeignRequestError, InvalidRegionError
from gateway.v2.members import JsonObject, parse_json
from gateway.v2.posix_memory import UNSIGNED, Region
from gateway.v2.shared_memory import SharedMemory
from models.errors import JsonAccessError, MalformedRequestError

PREFIXES = ("/v2/systemsharedmemory/", "/v2/cudasharedmemory/")
"""All paths of the extensions begin with one of them."""

_PATH = re.compile(r"/v2/(system|cuda)sharedmemory(?:/region/([^/]+))?/(status|register|unregister)")
_MAX_BODY_BYTES = 64 << 10  # so little that it is parsed at once
_CUDA_HANDLE_BYTES = 64
_NOT_FOUND = error_reply(404, "Not Found")
_WRONG_METHOD = error_reply(405, "Method Not Allowed")
_DONE = Reply(200, headers=(JSON_TYPE,))


class SharedMemoryVerbs:
    """Answers below ``/v2/systemsharedmemory/`` and ``/v2/cudasharedmemory/``.

    Args:
        memory: The registered regions.
        offload: Unpacks compressed bodies in a thread.
    """

    def __init__(self, memory: SharedMemory, *, offload: Offload) -> None:
        self._memory = memory
        self._offload = offload

    async def answer(self, scope: Scope, receive: Receive) -> Reply | None:
        """One request's answer, None when the client left before it was complete. Raises what V2_ERRORS lists."""
        target = _PATH.fullmatch(scope["path"])
        if target is None:
            return _NOT_FOUND
        kind, region, verb = target.groups()
        if scope["method"] != ("GET" if verb == "status" else "POST"):
            return _WRONG_METHOD
        if verb == "status":
            return self._status(kind, region)
        self._memory.check_enabled()
        _refuse_pages(scope)
        if verb == "unregister":
            if kind == "system":  # of the other kind there is none
                self._memory.unregister(region)
            return _DONE
        return await self._register(kind, region, scope, receive)

    def _status(self, kind: str, region: str | None) -> Reply:
        if kind == "cuda":
            return json_reply(self._memory.cuda_status(region))
        return json_reply([_entry(found) for found in self._memory.status(region)])

    async def _register(self, kind: str, region: str | None, scope: Scope, receive: Receive) -> Reply | None:
        if region is None:
            raise InvalidRegionError(f"'region name' is necessary to register {kind} shared memory region")
        chunks = await receive_body(receive, dict(scope["headers"]), _MAX_BODY_BYTES, self._offload)
        if chunks is None:
            return None
        register: Callable[[str, JsonObject], None] = self._register_cuda if kind == "cuda" else self._register_system
        register(region, parse_json(b"".join(chunks)))
        return _DONE

    def _register_system(self, region: str, body: JsonObject) -> None:
        key = _string(_field(body, "key"))
        offset = _unsigned(body["offset"]) if "offset" in body else 0
        self._memory.register(region, key, offset, _unsigned(_field(body, "byte_size")))

    def _register_cuda(self, region: str, body: JsonObject) -> None:
        handle = _field(body, "raw_handle")
        text = _string(_member(handle if isinstance(handle, dict) else {}, "b64"))
        _unsigned(_member(body, "byte_size"))
        _unsigned(_member(body, "device_id"))
        if len(_decoded(text)) != _CUDA_HANDLE_BYTES:
            raise MalformedRequestError("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t")
        self._memory.register_cuda(region)


def _refuse_pages(scope: Scope) -> None:
    # A browser names the page's origin in every POST, and no page has shared memory: one that registers some is after
    # that of others, e.g. the browser's own.
    for name, value in scope["headers"]:
        if name == b"origin":
            raise ForeignRequestError("Origin", value.decode("latin-1"), "none")


def _entry(region: Region) -> JsonObject:
    return {"name": region.name, "key": region.key, "offset": region.offset, "byte_size": region.size_bytes}


def _field(body: JsonObject, name: str) -> object:
    if name not in body:
        raise InvalidRegionError(f"Shared memory register request has no '{name}' field")
    return body[name]


def _member(body: JsonObject, name: str) -> object:
    if name not in body:
        raise JsonAccessError(f"attempt to access non-existing object member '{name}'")
    return body[name]


def _string(value: object) -> str:
    if isinstance(value, str):
        return value
    raise JsonAccessError("attempt to access JSON non-string as string")


def _unsigned(value: object) -> int:
    if type(value) is int and 0 <= value < UNSIGNED:
        return value
    raise JsonAccessError("attempt to access JSON non-unsigned-integer as unsigned-integer")


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:  # binascii's is one of its kinds
        return b""
