"""A server that runs: it listens, loads its models, answers, and ends in order when it is told to."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from backends.devices import GpuMonitor
from gateway.app import Gateway, create_metrics_app
from gateway.grpc_v2.server import GrpcServer
from gateway.grpc_v2.service import V2Service
from gateway.http_server import HttpServer, affordable_connections
from gateway.manager import ModelManager
from gateway.polling import Poller
from gateway.service import InferenceService
from gateway.settings import Settings

OnReady = Callable[[str], Coroutine[Any, Any, None]]

_log = logging.getLogger(__name__)

_IDLE_END_S = 0.5  # what a server without any request needs in order to end
_LAST_ANSWERS_S = 0.5  # once requests are given up: time to tell their callers
_ORDERLY_END_S = 1.5  # once requests are given up: a batch that hangs in an engine cannot be cancelled


class StartupError(Exception):
    """The server cannot start; the message lists what to mend."""


class Listeners(NamedTuple):
    """Bound sockets; those of a server that is not wanted are None."""

    http: socket.socket
    metrics: socket.socket | None = None
    grpc: socket.socket | None = None


class Parts(NamedTuple):
    """What answers."""

    service: InferenceService
    gateway: Gateway
    grpc_service: V2Service
    gpu_monitor: GpuMonitor
    manager: ModelManager
    poller: Poller


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


async def run(settings: Settings, parts: Parts, listeners: Listeners, stop: Stop, on_ready: OnReady | None) -> None:
    """Answer from the beginning, with what is loaded, until the wish to stop. Raises StartupError."""
    server = HttpServer(
        parts.gateway,
        listeners.http,
        max_connections=affordable_connections(settings.http_max_connections),
        max_body_bytes=settings.http_max_input_size,
        plan=parts.gateway.plan,
    )
    server.listen("--http-port")
    callers: list[HttpServer | GrpcServer] = [server]  # those whose callers are waited for
    if listeners.grpc is not None:
        callers.append(GrpcServer(parts.grpc_service, settings, listeners.grpc))
        callers[1].listen("--grpc-port")
    servers = [*callers]
    if listeners.metrics is not None:
        servers.append(HttpServer(create_metrics_app(parts.service, parts.gpu_monitor), listeners.metrics))
        servers[-1].listen("--metrics-port")
    start = _Start(settings, parts, stop, on_ready)
    async with asyncio.TaskGroup() as tasks:
        serving = [tasks.create_task(each.run_until_stopped()) for each in servers]
        await server.listening.wait()
        url = _url(settings.http_address, server.port)
        _log.info("listening", extra={"fields": {"url": url, **_ports(listeners)}})
        starting = tasks.create_task(start.run(url))
        await stop.wanted.wait()
        parts.service.stop_being_ready()
        parts.gateway.say_goodbye()
        await _drain(settings, callers, serving[: len(callers)], parts.manager, stop)
        await _end(starting)
        for each in servers[len(callers) :]:
            each.stop()
    _log.info("stopped")
    if start.failure is not None:
        raise start.failure


class _Start:
    """Loads what is there, tells that it is ready, follows what changes."""

    def __init__(self, settings: Settings, parts: Parts, stop: Stop, on_ready: OnReady | None) -> None:
        self._settings = settings
        self._parts = parts
        self._stop = stop
        self._on_ready = on_ready
        self.failure: StartupError | None = None

    async def run(self, url: str) -> None:
        """Until cancelled, or until there is nothing more to do."""
        async with asyncio.TaskGroup() as tasks:
            if self._settings.model_control_mode == "poll":
                tasks.create_task(self._parts.poller.run())
            await self._load(url)

    async def _load(self, url: str) -> None:
        problems = await self._parts.manager.start()
        if problems and self._settings.exit_on_error:
            self.failure = _failure(len(problems))
            self._stop.wanted.set()
            return
        fields = {"models": len(self._parts.service.model_names()), "problems": len(problems)}
        _log.info("started", extra={"fields": fields})
        if self._on_ready is not None:
            await self._on_ready(url)


def _failure(problems: int) -> StartupError:
    return StartupError(
        f"{problems} {'problem' if problems == 1 else 'problems'} while loading models, listed above; "
        "mend them, or start without --exit-on-error to serve the others"
    )


async def _end(starting: "asyncio.Task[None]") -> None:
    """Give up what is still being loaded; an engine that does not let itself be interrupted ends with the process."""
    starting.cancel()
    await asyncio.wait((starting,), timeout=_ORDERLY_END_S)
    if not starting.done():
        _log.warning("a model that is being loaded is given up")
        _end_later()


async def _drain(
    settings: Settings,
    servers: Sequence[HttpServer | GrpcServer],
    serving: Sequence[asyncio.Task[None]],
    manager: ModelManager,
    stop: Stop,
) -> None:
    """Go on answering for the lead time, then close the listeners and wait for what is still running."""
    lead_s = settings.drain_lead_secs if stop.politely else 0
    _log.info("stopping", extra={"fields": {"still_answering_s": lead_s, "at_most_s": settings.exit_timeout_secs}})
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(lead_s):
            await stop.forced.wait()
    _log.info("draining")
    manager.stop()
    for server in servers:
        server.stop()
    drained = asyncio.ensure_future(_drained(serving, manager))  # noqa: TID251 - awaited below
    forced = asyncio.ensure_future(stop.forced.wait())  # noqa: TID251 - awaited below
    at_most_s = max(settings.exit_timeout_secs, _IDLE_END_S)
    await asyncio.wait((drained, forced), timeout=at_most_s, return_when=asyncio.FIRST_COMPLETED)
    if not drained.done():
        await asyncio.wait((drained,), timeout=_IDLE_END_S)
    if not drained.done():
        _log.warning("requests are still running and are given up")
        _end_later()
        manager.give_up()
        await asyncio.wait(serving, timeout=_LAST_ANSWERS_S)
        for server in servers:
            server.force()
        await asyncio.wait(serving)
    drained.cancel()
    forced.cancel()
    await asyncio.wait((drained, forced))


async def _drained(serving: Sequence[asyncio.Task[None]], manager: ModelManager) -> None:
    await asyncio.wait(serving)
    await manager.drain()


def _end_later() -> None:
    # By a thread: what hangs may hold the event loop, or the interpreter that waits for its threads at the end.
    last_resort = threading.Timer(_ORDERLY_END_S, _end_at_once)
    last_resort.daemon = True
    last_resort.start()


def _end_at_once() -> None:
    _log.error("a batch does not end; the process ends without it")
    logging.shutdown()
    os._exit(1)


def _ports(listeners: Listeners) -> dict[str, int | None]:
    """The ports beside HTTP's, which is in the URL."""
    bound = {"grpc_port": listeners.grpc, "metrics_port": listeners.metrics}
    return {name: None if each is None else each.getsockname()[1] for name, each in bound.items()}


def _url(address: str, port: int) -> str:
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
