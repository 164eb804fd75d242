"""TensorRT engines that are built in the background while another executor serves."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol

from backends.errors import BackendError
from backends.placing import Site
from backends.tensorrt_engine.build_process import build_in_process
from backends.tensorrt_engine.jobs import needs_build
from models.spec import ModelSpec

logger = logging.getLogger(__name__)


class Renewable(Protocol):
    """What serves meanwhile."""

    async def renew(self) -> None:
        """Make the executors anew, and let them take over. Raises BackendError."""
        ...


async def build_and_renew(spec: ModelSpec, site: Site, serving: Renewable, environment: Mapping[str, str]) -> None:
    """Build what the version lacks on this site, then let it take over; without an engine, things stay as they are."""
    try:
        job = await asyncio.to_thread(needs_build, spec, site.placement)
        if job is None:
            return
        logger.info("%s: an engine is built in the background, because %s", job.model, job.reason)
        await build_in_process(job, environment)
        await serving.renew()
    except BackendError as error:
        logger.error("model '%s' version %d: no TensorRT engine: %s", spec.name, spec.version, error)  # noqa: TRY400 - the text says it all
    else:
        logger.info("%s: TensorRT has taken over on %s", job.model, site.placement.device)
