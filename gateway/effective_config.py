"""``GET /models/{model}/config``: the configuration in force, where each value comes from, texts that lead to it."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import JSONResponse

from gateway.classify import error_response
from gateway.engine import Engine, VersionStatistics
from gateway.versions import parse_version
from models.effective import effective_tables, side_text
from models.pbtxt_writer import config_text
from models.spec import ModelSpec


def create_config_router(engine: Engine) -> APIRouter:
    """The route."""
    router = APIRouter(tags=["server"])

    @router.get("/models/{model}/config", summary="The configuration in force, and where each value comes from")
    async def config(
        model: Annotated[str, Path()],
        version: Annotated[str | None, Query(description="number or label; default the newest")] = None,
    ) -> Response:
        try:
            number = None if version is None else parse_version(engine, model, version)
            return JSONResponse(describe_config(engine.model(model, number), engine.statistics()))
        except Exception as error:  # noqa: BLE001 - answered, and logged if it is a defect
            return error_response(error)

    return router


def describe_config(spec: ModelSpec, statistics: Sequence[VersionStatistics]) -> dict[str, object]:
    """A version's configuration in JSON-ready values.

    ``config`` is what v2 shows, ``shoal`` the same for what shoal.toml can say, defaults included. ``sources`` has an
    entry for each value, by its field path; those in ``shoal`` start with ``shoal.``. The two texts, written as
    config.pbtxt and shoal.toml beside the version's files, lead to the same version. ``running`` is what has become of
    the instance groups by now: counts may be measured, scaled, or those of a CPU in place of GPUs.
    """
    return {
        "model": spec.name,
        "version": str(spec.version),
        "config": spec.config,
        "shoal": effective_tables(spec),
        "sources": spec.sources,
        "pbtxt": config_text(spec),
        "shoal_toml": side_text(spec),
        "running": _running(spec, statistics),
    }


def _running(spec: ModelSpec, statistics: Sequence[VersionStatistics]) -> dict[str, object]:
    entries = [entry for entry in statistics if (entry.model, entry.version) == (spec.name, spec.version)]
    members = [member for entry in entries for member in entry.members]
    instances = [
        {"name": member.statistics.name, "device": member.statistics.device, "state": member.state.value}
        for member in members
    ]
    return {"instances": instances, "devices": sorted({member.statistics.device for member in members})}
