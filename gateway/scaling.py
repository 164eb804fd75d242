"""``POST /models/{model}/scale``: how many instances a version has."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from gateway.classify import error_response
from gateway.control import ModelControl
from gateway.control_access import GuardedControl, permitted
from gateway.engine import Engine
from gateway.versions import parse_version
from models.errors import ControlNotAllowedError, InvalidRequestError

_MAX_DIGITS = 6


def create_scale_router(engine: Engine, control: GuardedControl | None) -> APIRouter:
    """The route; without control it answers that the mode does not allow it."""
    router = APIRouter(tags=["control"])

    @router.post("/models/{model}/scale", summary="Change the number of instances; needs the mode explicit")
    async def scale(
        request: Request,
        model: Annotated[str, Path()],
        instances: Annotated[str | None, Query(description="how many; 0 takes it out of service")] = None,
        version: Annotated[str | None, Query(description="number or label; default the newest")] = None,
    ) -> Response:
        try:
            verbs = _permitted(control, request)
            count = _parse_instances(instances)
            number = None if version is None else parse_version(engine, model, version)
            await verbs.scale(model, number, count)
        except Exception as error:  # noqa: BLE001 - answered, and logged if it is a defect
            return error_response(error)
        return JSONResponse({"model": model, "instances": count})

    return router


def _permitted(control: GuardedControl | None, request: Request) -> ModelControl:
    try:
        return permitted(control, request.scope["headers"])
    except ControlNotAllowedError:  # whose own text is Triton's, about load and unload
        mode = "none" if control is None else control.mode
        raise ControlNotAllowedError(
            f"scale is not allowed in the mode {mode}; start the server with --model-control-mode=explicit"
        ) from None


def _parse_instances(text: str | None) -> int:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > _MAX_DIGITS:
        found = "none" if text is None else f"{text[:32]!r}"
        raise InvalidRequestError(f"instances: found {found}, expected a number, e.g. ?instances=2")
    return int(text)
