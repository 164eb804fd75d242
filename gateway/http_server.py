"""uvicorn, with the process's owner in charge of signals and sockets."""

import asyncio
import contextlib
import errno
import resource
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import uvicorn
from typing_extensions import override

from gateway.asgi import Begin, Scope
from gateway.http_exchange import MAX_BODY_BYTES, KnownHeads
from gateway.http_protocol import SWEEP_S, LimitedProtocol

_TICKS_PER_SWEEP = 10 * SWEEP_S  # uvicorn ticks ten times a second
_SPARE_FILES = 256  # for models, workers, pipes and other servers


class PortInUseError(OSError):
    """The address cannot be bound."""


class HttpServer(uvicorn.Server):
    """Serves one ASGI application on one bound socket until `stop`; waits for running requests until `force`.

    Args:
        app: The application.
        listener: A socket from `bind`.
        max_connections: Open ones; what comes beyond is answered 503.
        max_body_bytes: Above it the application refuses a request by its head alone.
        plan: See `KnownHeads`.
    """

    def __init__(
        self,
        app: Any,
        listener: socket.socket,
        *,
        max_connections: int = 10_000,
        max_body_bytes: int = MAX_BODY_BYTES,
        plan: Callable[[Scope], Begin | None] | None = None,
    ) -> None:
        known = KnownHeads(max_body_bytes, plan)
        protocol = partial(LimitedProtocol, known=known, max_connections=max_connections)
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol,  # type: ignore[arg-type]  # it is called and nothing else
                interface="asgi3",
                lifespan="off",
                ws="none",
                proxy_headers=False,  # nothing here asks who the client is
                log_config=None,
                access_log=False,
                server_header=False,
            )
        )
        self.listening = asyncio.Event()
        self._listener = listener

    @property
    def port(self) -> int:
        """The port that was bound."""
        port: int = self._listener.getsockname()[1]
        return port

    async def run_until_stopped(self) -> None:
        """Serve; returns when the last response has been sent."""
        await self.serve([self._listener])

    def stop(self) -> None:
        """Close the listener, let running requests finish."""
        self.should_exit = True

    def listen(self, flag: str) -> None:
        """Let clients connect; they are served once `run_until_stopped` runs. Raises PortInUseError, see `bind`."""
        address, port = self._listener.getsockname()[:2]
        try:
            self._listener.listen(2048)
        except OSError as error:
            raise _in_use(address, port, flag, error) from None

    def force(self) -> None:
        """Do not wait for running requests any longer."""
        self.should_exit = self.force_exit = True
        for connection in list(self.server_state.connections):
            connection.transport.close()  # who waits for the client hears that it is gone, and ends in peace

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @override
    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS_PER_SWEEP == 0:
            for connection in list(self.server_state.connections):
                if isinstance(connection, LimitedProtocol):
                    connection.sweep()
        return await super().on_tick(counter)

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # uvicorn's own handler closes the listener at once and re-raises the signal at the end


def raise_file_limit() -> None:
    """Allow as many connections as the system does; the soft limit is often 1024 and new clients would be reset."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def affordable_connections(wanted: int) -> int:
    """As many as wanted, or as there are files for: without one a new connection could not even be refused."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if files == resource.RLIM_INFINITY else max(1, min(wanted, files - _SPARE_FILES))


def bind(address: str, port: int, flag: str, address_flag: str = "--http-address") -> socket.socket:
    """A bound socket that does not listen yet: until it does, clients are told at once that nobody is there.

    Args:
        address: A host name or an IP address.
        port: 0 means any free port.
        flag: The command-line flag that chooses the port, for the error.
        address_flag: Likewise the address.

    Raises:
        PortInUseError: Says which flag chooses another port or address.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
    except OSError as error:
        listener.close()
        raise _in_use(address, port, flag, error, address_flag) from None
    return listener


def _in_use(address: str, port: int, flag: str, error: OSError, address_flag: str = "--http-address") -> PortInUseError:
    what = f"choose another port with {flag}"
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        what = f"choose an address of this machine with {address_flag}"
    return PortInUseError(f"cannot listen on {address}:{port} ({error.strerror or error}); {what}")
