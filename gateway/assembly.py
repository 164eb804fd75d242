"""The composition root: builds every part, owns the process's tasks, its signals and the order of shutting down."""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from importlib.metadata import version as package_version
from typing import TypeVar

from backends.cpu_budget import available_cores
from backends.devices import GpuMonitor, gpus
from backends.errors import BackendError
from backends.workers import WorkerHouse
from batching.alarm import create_alarm
from batching.clock import MonotonicClock
from gateway import logs
from gateway.app import Gateway, create_rest_app
from gateway.catalogue import Catalogue
from gateway.classify import ClassifyLimits, ClassifySurface
from gateway.control_access import ControlAccess, ControlAccessError, GuardedControl
from gateway.decoding import Decoder, ThreadDecoder
from gateway.grpc_v2.server import GrpcConfigError
from gateway.grpc_v2.service import V2Service
from gateway.http_server import PortInUseError, bind, raise_file_limit
from gateway.loading import Loader, LoadingSite
from gateway.manager import ControlRules, CreateLoader, ModelManager
from gateway.polling import Poller
from gateway.rate_limit import RateLimit, parse_resource_limit
from gateway.repositories import open_repositories
from gateway.request_log import LoggedService
from gateway.restricted_rest import RestrictedRest
from gateway.running import Listeners, OnReady, Parts, StartupError, Stop, run
from gateway.service import InferenceService
from gateway.settings import Settings
from gateway.v2.app import V2Surface
from gateway.v2.forwarding import HeaderForwarding
from gateway.v2.limits import V2Limits
from gateway.v2.logging_settings import LogSettings
from gateway.v2.restricted import RestrictedFeatures
from gateway.v2.shared_memory import SharedMemory
from gateway.v2.surface_settings import SurfaceSettings
from models.errors import ModelsError
from models.images.header import ImageLimits

T = TypeVar("T")

_log = logging.getLogger(__name__)

VERSION = package_version("shoal")

EXPECTED_ERRORS = (StartupError, PortInUseError, GrpcConfigError, ControlAccessError, BackendError, ModelsError)
"""What `serve` raises when the world is not as it should be; the message says it all."""


async def serve(settings: Settings, on_ready: OnReady | None = None) -> None:
    """Serve until SIGINT or SIGTERM, then drain.

    Args:
        settings: Everything that can be set.
        on_ready: Called once with the server's URL when it is ready.

    Raises:
        StartupError: A model cannot be loaded at the start, and `exit_on_error` is set.
        RepositoryError: A repository cannot be read.
        PortInUseError: An address cannot be bound.
    """
    stop = Stop()
    loop = asyncio.get_running_loop()
    clock = MonotonicClock()
    async with AsyncExitStack() as stack:
        threads = available_cores()
        limits = ImageLimits(
            max_bytes=settings.max_image_bytes,
            max_side_pixels=settings.max_image_side,
            max_pixels=settings.max_image_pixels,
        )
        raise_file_limit()
        access = ControlAccess.of(settings)
        listeners = _bind(settings, stack)
        decoder = ThreadDecoder(threads, limits)
        stack.callback(decoder.close)
        codec_pool = stack.enter_context(ThreadPoolExecutor(threads, thread_name_prefix="codec"))
        look = await asyncio.to_thread(open_repositories, settings)
        catalogue = Catalogue()
        loader = await _create_loader(settings, catalogue, decoder, clock, stack)
        manager = await stack.enter_async_context(ModelManager(catalogue, look, _rules(settings), loader))
        await manager.survey()
        # Until here a signal ends the process at once: nothing has been accepted that could be lost.
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.on_signal, number)
        service = _create_service(catalogue, settings, clock)
        gpu_monitor = GpuMonitor(clock)
        stack.callback(gpu_monitor.close)
        gateway, grpc_service = create_surfaces(service, settings, codec_pool, GuardedControl(manager, access))
        poller = Poller(manager, clock, every_s=settings.repository_poll_secs)
        parts = Parts(service, gateway, grpc_service, gpu_monitor, manager, poller)
        await run(settings, parts, listeners, stop, on_ready)


def _bind(settings: Settings, stack: AsyncExitStack) -> Listeners:
    """Before anything is loaded, so that a port in use is told at once."""
    listeners = Listeners(stack.enter_context(bind(settings.http_address, settings.http_port, "--http-port")))
    if settings.allow_grpc:
        address = settings.grpc_address or settings.http_address
        bound = bind(address, settings.grpc_port, "--grpc-port", "--grpc-address")
        listeners = listeners._replace(grpc=stack.enter_context(bound))
    if settings.allow_metrics:
        bound = bind(settings.http_address, settings.metrics_port, "--metrics-port")
        listeners = listeners._replace(metrics=stack.enter_context(bound))
    return listeners


async def _create_loader(
    settings: Settings, catalogue: Catalogue, decoder: Decoder, clock: MonotonicClock, stack: AsyncExitStack
) -> CreateLoader:
    loop = asyncio.get_running_loop()
    workers = await stack.enter_async_context(WorkerHouse(clock))
    found = await asyncio.to_thread(gpus)
    site = LoadingSite(
        settings=settings,
        visible_gpus={gpu.index: gpu.uuid for gpu in found},
        workers=workers,
        rate_limit=_rate_limit(settings, clock),
        decoder=decoder,
        clock=clock,
        create_alarm=lambda ring: create_alarm(loop, clock, ring),
    )
    return partial(Loader, site, catalogue)


def _rules(settings: Settings) -> ControlRules:
    return ControlRules(
        mode=settings.model_control_mode,
        load_model=settings.load_model,
        load_at_once=settings.model_load_thread_count,
    )


def _rate_limit(settings: Settings, clock: MonotonicClock) -> RateLimit | None:
    limits = [parse_resource_limit(text) for text in settings.rate_limit_resource]
    if settings.rate_limit == "execution_count":
        return RateLimit(limits, clock)
    if limits:
        _log.warning("--rate-limit-resource has no effect without --rate-limit=execution_count")
    return None


def _create_service(catalogue: Catalogue, settings: Settings, clock: MonotonicClock) -> InferenceService:
    if not settings.log_requests:
        return InferenceService(catalogue, strict_readiness=settings.strict_readiness)
    return LoggedService(clock, catalogue, strict_readiness=settings.strict_readiness)


def create_surfaces(
    service: InferenceService, settings: Settings, codec_pool: ThreadPoolExecutor, control: GuardedControl
) -> tuple[Gateway, V2Service]:
    """What answers over HTTP and over gRPC, with one engine and one state behind both."""

    def offload(function: Callable[[], T]) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(codec_pool, function)

    http_settings, grpc_settings = _surface_settings(settings)
    memory = SharedMemory(is_enabled=settings.allow_client_shm, max_read_bytes=settings.http_max_input_size)
    v2 = V2Surface(
        service,
        V2Limits(max_body_bytes=settings.http_max_input_size),
        offload=offload,
        server_version=VERSION,
        control=control,
        memory=memory,
        settings=http_settings,
    )
    limits = ClassifyLimits(max_body_bytes=settings.http_max_input_size, max_images=settings.max_images)
    rest = create_rest_app(service, ClassifySurface(service, limits, offload=offload), VERSION, control)
    grpc_service = V2Service(
        service,
        offload=offload,
        server_version=VERSION,
        control=control,
        memory=memory,
        settings=grpc_settings,
    )
    restricted = http_settings.restricted
    return Gateway(v2, RestrictedRest(rest, restricted) if restricted else rest), grpc_service


def _surface_settings(settings: Settings) -> tuple[SurfaceSettings, SurfaceSettings]:
    """Of HTTP and of gRPC: trace and log settings are the same for both."""
    http = SurfaceSettings(
        server_name=settings.id,
        restricted=RestrictedFeatures.parse(settings.http_restricted_api),
        forwarding=_forwarding(settings.http_header_forward_pattern),
        logs=LogSettings(
            logs.LogLevels(verbose=settings.log_verbose, iso_times=settings.log_format == "ISO8601"), logs.set_levels
        ),
    )
    grpc = replace(
        http,
        restricted=RestrictedFeatures.parse(settings.grpc_restricted_protocol),
        forwarding=_forwarding(settings.grpc_header_forward_pattern),
    )
    return http, grpc


def _forwarding(pattern: str) -> HeaderForwarding | None:
    return HeaderForwarding.parse(pattern) if pattern else None
