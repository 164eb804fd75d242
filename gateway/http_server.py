"""uvicorn, with the process's owner in charge of signals and sockets."""

import asyncio
import contextlib
import math
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from typing_extensions import override


class PortInUseError(OSError):
    """The address cannot be bound."""


class HttpServer(uvicorn.Server):
    """Serves one ASGI application on one bound socket until `stop`."""

    def __init__(self, app: Any, listener: socket.socket, exit_timeout_s: float) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                interface="asgi3",
                lifespan="off",
                proxy_headers=False,  # nothing here asks who the client is
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=math.ceil(exit_timeout_s),
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

    def force(self) -> None:
        """Do not wait for running requests any longer."""
        self.should_exit = self.force_exit = True

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # uvicorn's own handler closes the listener at once and re-raises the signal at the end


def bind(address: str, port: int, flag: str) -> socket.socket:
    """A listening socket.

    Raises:
        PortInUseError: With the flag that chooses another port.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family, backlog=2048)
    except OSError as error:
        reason = str(error.strerror or error).partition(" (while attempting")[0]  # Python repeats the address
        raise PortInUseError(f"cannot listen on {address}:{port} ({reason}); choose another port with {flag}") from None
