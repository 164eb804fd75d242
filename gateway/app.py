"""The root ASGI application: bare ASGI for the hot v2 paths, FastAPI for everything else."""

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backends.devices import GpuMonitor
from gateway import torchserve_paths
from gateway.asgi import Begin, Exchange
from gateway.classify import ClassifySurface, create_router, error_response
from gateway.control_access import GuardedControl
from gateway.effective_config import create_config_router
from gateway.engine import Engine, VersionStatistics
from gateway.metrics import CONTENT_TYPE, Snapshot, render_metrics
from gateway.scaling import create_scale_router
from gateway.v2.app import V2Surface
from gateway.v2.openapi import V2_PATHS


class Gateway:
    """Sends a request to its surface. After `say_goodbye` every answer also asks the client to close its connection.

    Args:
        v2: What answers ``/v2`` and everything below it.
        rest: What answers all other paths.
    """

    def __init__(self, v2: V2Surface, rest: ASGIApp) -> None:
        self._v2 = v2
        self._rest = rest
        self._leaving = False

    def say_goodbye(self) -> None:
        """The server is about to stop: clients should open their next connection elsewhere."""
        self._leaving = True

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer one request."""
        if self._leaving:
            send = _closing(send)
        if _is_v2(scope):
            return self._v2(scope, receive, send)
        return self._rest(scope, receive, send)

    def plan(self, scope: Scope) -> Begin | None:
        """See `KnownHeads`."""
        begin = self._v2.plan(scope) if _is_v2(scope) else None
        return None if begin is None else partial(self._begin, begin)

    def _begin(self, begin: Begin, exchange: Exchange) -> bool:
        return not self._leaving and begin(exchange)


def _is_v2(scope: Scope) -> bool:
    path: str = scope.get("path", "")
    return scope["type"] == "http" and path.startswith("/v2") and path[3:4] in {"", "/"}


def _closing(send: Send) -> Send:
    async def send_and_close(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        await send(message)

    return send_and_close


def create_rest_app(
    engine: Engine, classify: ClassifySurface, version: str, control: GuardedControl | None = None
) -> FastAPI:
    """Classification, the list of models, scaling, OpenAPI."""
    app = FastAPIOffline(
        title="Shoal",
        version=version,
        description="An inference gateway for image classification. The v2 protocol is Triton's.",
        redoc_url=None,
        redirect_slashes=False,
    )
    app.include_router(create_router(classify))
    app.include_router(create_scale_router(engine, control))
    app.include_router(create_config_router(engine))

    @app.get("/", summary="Where to go from here", tags=["server"])
    async def index() -> dict[str, str]:
        return {"name": "shoal", "version": version, "classify": "/classify", "models": "/models", "docs": "/docs"}

    @app.get("/models", summary="All models with their versions", tags=["server"])
    async def models() -> list[dict[str, object]]:
        statistics = engine.statistics()
        return [describe_model(engine, name, statistics) for name in engine.model_names()]

    @app.exception_handler(HTTPException)
    async def answer_http_error(request: Request, error: HTTPException) -> Response:
        text = torchserve_paths.hint(request.method, request.url.path) or error.detail
        return JSONResponse({"error": text}, error.status_code, error.headers)

    @app.exception_handler(Exception)
    async def answer_defect(_request: Request, error: Exception) -> Response:
        return error_response(error)

    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]  # FastAPI documents this way of extending it
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's document with the paths that it does not route."""
    document: dict[str, Any] = FastAPI.openapi(app)
    document["paths"].update(V2_PATHS)
    return document


def describe_model(engine: Engine, name: str, statistics: Sequence[VersionStatistics]) -> dict[str, object]:
    """One model as ``/models`` shows it."""
    versions = engine.ready_versions(name)
    problem = engine.problem(name)
    told = {"problem": problem} if problem else {}
    if not versions:
        return {"name": name, "versions": [], "ready": False, **told}
    spec = engine.model(name)
    return {
        "name": name,
        "versions": [str(version) for version in versions],
        "ready": engine.is_model_ready(name),
        "backend": spec.backend,
        "policy": spec.batching.policy,
        "max_batch_size": spec.max_batch_rows,
        "instances": sum(
            entry.instances for entry in statistics if (entry.model, entry.version) == (spec.name, spec.version)
        ),
        "classifies_images": spec.preprocessing is not None,
        **told,
    }


def create_metrics_app(engine: Engine, gpus: GpuMonitor | None = None) -> ASGIApp:
    """``GET /metrics`` on a port of its own, so that scraping needs no access to the models.

    As in Triton, any other path is answered with nothing, and any other method is refused.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET":
            response = Response('{"error":"Method Not Allowed"}', 405, media_type="application/json")
        elif scope["path"] not in {"/metrics", "/metrics/"}:
            response = Response(headers={"content-type": CONTENT_TYPE})
        else:
            text = await asyncio.to_thread(render_metrics, Snapshot.of(engine), gpus)
            response = Response(text, headers={"content-type": CONTENT_TYPE})
        await response(scope, receive, send)

    return app
