"""The composition root: builds every part, owns the process's tasks, its signals and the order of shutting down."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from importlib.metadata import version as package_version
from typing import Any, NamedTuple, TypeVar

from backends.cpu_budget import available_cores
from backends.devices import GpuMonitor
from backends.errors import BackendError
from batching.alarm import create_alarm
from batching.clock import MonotonicClock
from batching.runner import Runner
from gateway.app import Gateway, create_metrics_app, create_rest_app
from gateway.classify import ClassifyLimits, ClassifySurface
from gateway.decoding import ThreadDecoder
from gateway.http_server import HttpServer, PortInUseError, bind, raise_file_limit
from gateway.loading import Loaded, loaded_models, read_repositories
from gateway.request_log import LoggedService
from gateway.service import InferenceService
from gateway.settings import Settings
from gateway.v2.app import V2Limits, V2Surface
from models.errors import ModelsError
from models.images.header import ImageLimits
from models.inference import Tensors

T = TypeVar("T")
OnReady = Callable[[str], Coroutine[Any, Any, None]]

_log = logging.getLogger(__name__)

VERSION = package_version("shoal")
_IDLE_END_S = 0.5  # what a server without any request needs in order to end
_LAST_ANSWERS_S = 0.5  # once requests are given up: time to tell their callers
_ORDERLY_END_S = 1.5  # once requests are given up: a batch that hangs in an engine cannot be cancelled


class StartupError(Exception):
    """The server cannot start; the message lists what to mend."""


EXPECTED_ERRORS = (StartupError, PortInUseError, BackendError, ModelsError)
"""What `serve` raises when the world is not as it should be; the message says it all."""


class Listeners(NamedTuple):
    """Bound sockets; those of a server that is not wanted are None."""

    http: socket.socket
    metrics: socket.socket | None


class Parts(NamedTuple):
    """What answers."""

    service: InferenceService
    gateway: Gateway
    gpu_monitor: GpuMonitor
    runners: Sequence[Runner[Tensors, Tensors]]


class Stop:
    """The wish to stop: a first signal asks for it, a second one forces it."""

    def __init__(self) -> None:
        self.wanted = asyncio.Event()
        self.forced = asyncio.Event()
        self.politely = False  # a load balancer must be given time to notice

    def on_signal(self, number: signal.Signals) -> None:
        """SIGTERM comes from an orchestrator, SIGINT from somebody at a keyboard."""
        if self.wanted.is_set():
            self.forced.set()
        self.politely = number is signal.SIGTERM
        self.wanted.set()


async def serve(settings: Settings, on_ready: OnReady | None = None) -> None:
    """Serve until SIGINT or SIGTERM, then drain.

    Args:
        settings: Everything that can be set.
        on_ready: Called once with the server's URL when it is ready.

    Raises:
        StartupError: A model cannot be loaded, and `exit_on_error` is set.
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
        listeners = _bind(settings, stack)
        decoder = ThreadDecoder(threads, limits)
        stack.callback(decoder.close)
        codec_pool = stack.enter_context(ThreadPoolExecutor(threads, thread_name_prefix="codec"))
        entries = await asyncio.to_thread(read_repositories, settings)
        loaded = await stack.enter_async_context(
            loaded_models(entries, settings, decoder, clock, lambda ring: create_alarm(loop, clock, ring))
        )
        _check(loaded, settings)
        # Until here a signal ends the process at once: nothing has been accepted that could be lost.
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.on_signal, number)
        service = _create_service(loaded, settings, clock)
        gpu_monitor = GpuMonitor(clock)
        stack.callback(gpu_monitor.close)
        gateway = create_gateway(service, settings, codec_pool)
        await _run(settings, Parts(service, gateway, gpu_monitor, loaded.runners()), listeners, stop, on_ready)


def _bind(settings: Settings, stack: AsyncExitStack) -> Listeners:
    """Before anything is loaded, so that a port in use is told at once."""
    http = stack.enter_context(bind(settings.http_address, settings.http_port, "--http-port"))
    if not settings.allow_metrics:
        return Listeners(http, None)
    return Listeners(http, stack.enter_context(bind(settings.http_address, settings.metrics_port, "--metrics-port")))


def _check(loaded: Loaded, settings: Settings) -> None:
    for problem in loaded.problems:
        _log.error("%s", problem)
    if loaded.problems and settings.exit_on_error:
        count = len(loaded.problems)
        raise StartupError(
            f"{count} {'problem' if count == 1 else 'problems'} while loading models, listed above; "
            "mend them, or start with --exit-on-error=false to serve the others"
        )


def _create_service(loaded: Loaded, settings: Settings, clock: MonotonicClock) -> InferenceService:
    if not settings.log_requests:
        return InferenceService(loaded.models, loaded.failed, strict_readiness=settings.strict_readiness)
    return LoggedService(clock, loaded.models, loaded.failed, strict_readiness=settings.strict_readiness)


def create_gateway(service: InferenceService, settings: Settings, codec_pool: ThreadPoolExecutor) -> Gateway:
    """The root application over an engine."""

    def offload(function: Callable[[], T]) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(codec_pool, function)

    v2 = V2Surface(
        service,
        V2Limits(max_body_bytes=settings.http_max_input_size),
        offload=offload,
        server_name=settings.id,
        server_version=VERSION,
    )
    limits = ClassifyLimits(max_body_bytes=settings.http_max_input_size, max_images=settings.max_images)
    return Gateway(v2, create_rest_app(service, ClassifySurface(service, limits, offload=offload), VERSION))


async def _run(
    settings: Settings,
    parts: Parts,
    listeners: Listeners,
    stop: Stop,
    on_ready: OnReady | None,
) -> None:
    server = HttpServer(parts.gateway, listeners.http)
    metrics = None
    if listeners.metrics is not None:
        metrics = HttpServer(create_metrics_app(parts.service, parts.gpu_monitor), listeners.metrics)
    server.listen("--http-port")
    if metrics is not None:
        metrics.listen("--metrics-port")
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(runner.run()) for runner in parts.runners]
        serving = tasks.create_task(server.run_until_stopped())
        if metrics is not None:
            tasks.create_task(metrics.run_until_stopped())
        await server.listening.wait()
        url = _url(settings.http_address, server.port)
        _log.info("listening", extra={"fields": {"url": url, "metrics_port": metrics.port if metrics else None}})
        greeting = tasks.create_task(on_ready(url)) if on_ready is not None else None
        await stop.wanted.wait()
        parts.service.stop_being_ready()
        parts.gateway.say_goodbye()
        await _drain(settings, server, serving, parts.runners, running, stop)
        for task in (*running, *([greeting] if greeting else ())):
            task.cancel()
        if metrics is not None:
            metrics.stop()
    _log.info("stopped")


async def _drain(
    settings: Settings,
    server: HttpServer,
    serving: asyncio.Task[None],
    runners: Sequence[Runner[Tensors, Tensors]],
    running: Sequence[asyncio.Task[None]],
    stop: Stop,
) -> None:
    """Go on answering for the lead time, then close the listener and wait for what is still running."""
    lead_s = settings.drain_lead_secs if stop.politely else 0
    _log.info("stopping", extra={"fields": {"still_answering_s": lead_s, "at_most_s": settings.exit_timeout_secs}})
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(lead_s):
            await stop.forced.wait()
    _log.info("draining")
    server.stop()
    drained = asyncio.ensure_future(_drained(serving, runners))  # noqa: TID251 - awaited below
    forced = asyncio.ensure_future(stop.forced.wait())  # noqa: TID251 - awaited below
    at_most_s = max(settings.exit_timeout_secs, _IDLE_END_S)
    await asyncio.wait((drained, forced), timeout=at_most_s, return_when=asyncio.FIRST_COMPLETED)
    if not drained.done():
        await asyncio.wait((drained,), timeout=_IDLE_END_S)
    if not drained.done():
        _log.warning("requests are still running and are given up")
        asyncio.get_running_loop().call_later(_ORDERLY_END_S, _end_at_once)
        for task in running:
            task.cancel()  # a runner that ends answers everything that it holds
        await asyncio.wait((serving,), timeout=_LAST_ANSWERS_S)
        server.force()
        await asyncio.wait((serving,))
    drained.cancel()
    forced.cancel()
    await asyncio.wait((drained, forced))


async def _drained(serving: asyncio.Task[None], runners: Sequence[Runner[Tensors, Tensors]]) -> None:
    await asyncio.wait((serving,))
    for runner in runners:
        await runner.drain()


def _end_at_once() -> None:
    _log.error("a batch does not end; the process ends without it")
    logging.shutdown()
    os._exit(1)


def _url(address: str, port: int) -> str:
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
