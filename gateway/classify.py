"""``POST /classify``: a photograph in, labels out."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from gateway.asgi import Headers, Offload, receive_body, unless_disconnected
from gateway.classify_codec import (
    DEFAULT_TOP_K,
    MAX_TOP_K,
    ClassifyBody,
    check_query,
    error_row,
    parse_body,
    parse_top_k,
    render_response,
    server_timing,
)
from gateway.engine import Engine
from gateway.errors import CLASSIFY_ERRORS, TokenError, explain
from gateway.versions import parse_version
from models.errors import ModelUnavailableError
from models.inference import ClassifyRequest

_INLINE_BYTES = 64 << 10  # a larger JSON or form body is parsed in a thread

_PREDICTION = {
    "type": "object",
    "properties": {"class": {"type": "integer"}, "label": {"type": "string"}, "probability": {"type": "number"}},
}
_OPENAPI: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "image/*": {"schema": {"type": "string", "format": "binary"}},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {"image": {"type": "array", "items": {"type": "string", "format": "binary"}}},
                }
            },
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["images"],
                    "properties": {
                        "images": {
                            "type": "array",
                            "items": {"type": "string", "description": "base64 or a data URL"},
                        },
                        "top_k": {"type": "integer", "minimum": 1, "maximum": MAX_TOP_K, "default": DEFAULT_TOP_K},
                    },
                }
            },
        },
    },
    "responses": {
        "200": {
            "description": "Predictions, most probable first; for several images a list of such lists",
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "properties": {
                            "model": {"type": "string"},
                            "version": {"type": "string"},
                            "predictions": {"type": "array", "items": _PREDICTION},
                            "timing_ms": {"type": "object", "additionalProperties": {"type": "number"}},
                        },
                    }
                }
            },
        },
        "413": {"description": "Too large, found before decoding"},
        "415": {"description": "Not an image of an accepted format"},
        "422": {"description": "Damaged image, or no image to classify"},
        "429": {"description": "The queue is full; try again after Retry-After seconds"},
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifyLimits:
    """Limits of the surface: bytes of a body, images of a request."""

    max_body_bytes: int = 64 << 20
    max_images: int = 64


class ClassifySurface:
    """Parses bodies, asks the engine, renders answers."""

    def __init__(self, engine: Engine, limits: ClassifyLimits, *, offload: Offload) -> None:
        self._engine = engine
        self._limits = limits
        self._offload = offload

    async def answer(
        self, request: Request, model: str | None, top_k: str | None, version: str | None = None
    ) -> Response:
        """One HTTP request; every error becomes its JSON answer."""
        try:
            return await self._answer(request, model, top_k, version)
        except Exception as error:  # noqa: BLE001 - answered, and logged if it is a defect
            return error_response(error)

    async def _answer(self, request: Request, model: str | None, top_k: str | None, version: str | None) -> Response:
        check_query(request.query_params)
        if model is None and version is not None:
            model = self._only_classifier()
        number = None if model is None or version is None else parse_version(self._engine, model, version)
        wanted = None if top_k is None else parse_top_k(top_k)
        headers: Headers = dict(request.scope["headers"])
        chunks = await receive_body(request.receive, headers, self._limits.max_body_bytes, self._offload)
        if chunks is None:
            return Response(status_code=499)  # nobody is there to read it
        body = await self._parse(b"".join(chunks), headers.get(b"content-type", b""))
        call = ClassifyRequest(
            model=model,
            version=number,
            images=body.images,
            top_k=wanted or body.top_k or DEFAULT_TOP_K,
            request_id=headers.get(b"x-request-id", b"").decode("latin-1")[:128],
        )
        response = await unless_disconnected(self._engine.classify(call), request.receive)
        if response is None:
            return Response(status_code=499)
        status, content = render_response(response)
        reply = Response(content, status, media_type="application/json")
        reply.headers["Server-Timing"] = server_timing(response.timing)
        _add_retry_after(reply, next((result for result in response.results if isinstance(result, Exception)), None))
        return reply

    def _only_classifier(self) -> str | None:
        """The model that a request without a name means; None if none or several could be meant."""
        names = [name for name in self._engine.model_names() if self._is_classifier(name)]
        return names[0] if len(names) == 1 else None

    def _is_classifier(self, name: str) -> bool:
        try:
            return self._engine.model(name).preprocessing is not None
        except ModelUnavailableError:
            return False

    async def _parse(self, data: bytes, content_type: bytes) -> ClassifyBody:
        parse = partial(parse_body, data, content_type, self._limits.max_images)
        is_raw = not content_type.strip().lower().startswith((b"application/json", b"multipart/"))
        return parse() if is_raw or len(data) <= _INLINE_BYTES else await self._offload(parse)


def error_response(error: Exception) -> Response:
    """The JSON answer to an error; a defect of the program is logged and not shown."""
    row, text = explain(CLASSIFY_ERRORS, error)
    reply = JSONResponse({"error": text}, row.status)
    if isinstance(error, TokenError):
        reply.headers["WWW-Authenticate"] = "Bearer"
    _add_retry_after(reply, error)
    return reply


def _add_retry_after(reply: Response, error: Exception | None) -> None:
    if error is not None and reply.status_code >= 400:
        retry_after_s = error_row(error).retry_after_s
        if retry_after_s is not None:
            reply.headers["Retry-After"] = str(retry_after_s)


def create_router(surface: ClassifySurface) -> APIRouter:
    """The routes; the bodies are read raw, so FastAPI only documents them."""
    router = APIRouter(tags=["classify"])
    top_k = Query(description=f"classes per image, 1 to {MAX_TOP_K}; default {DEFAULT_TOP_K}")
    of_version = Query(description="number or label; default the newest")

    @router.post("/classify", summary="Classify images with the server's only classifier", openapi_extra=_OPENAPI)
    async def classify(
        request: Request,
        top_k: Annotated[str | None, top_k] = None,
        version: Annotated[str | None, of_version] = None,
    ) -> Response:
        return await surface.answer(request, None, top_k, version)

    @router.post("/classify/{model}", summary="Classify images with one model", openapi_extra=_OPENAPI)
    async def classify_with(
        request: Request,
        model: Annotated[str, Path()],
        top_k: Annotated[str | None, top_k] = None,
        version: Annotated[str | None, of_version] = None,
    ) -> Response:
        return await surface.answer(request, model, top_k, version)

    return router
