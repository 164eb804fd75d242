"""grpc.aio, on an address that was bound before."""

import asyncio
import logging
import socket
import ssl
from pathlib import Path
from typing import Any

import grpc

from gateway.grpc_v2.service import V2Service
from gateway.http_server import PortInUseError, affordable_connections
from gateway.settings import Settings

_log = logging.getLogger(__name__)

_UNTIL_FORCED_S = 1e9
_MAX_CALLS = 1024  # of one connection; more wait at the client
_LEVELS = ("none", "low", "medium", "high")

Options = list[tuple[str, int]]


class GrpcConfigError(Exception):
    """The server cannot start like that: a file of the encryption is missing or wrong."""


class GrpcServer:
    """Serves gRPC until `stop`; waits for running calls until `force`.

    Args:
        service: What answers.
        settings: The flags that begin with ``grpc-``.
        bound: A socket that is bound, so that nobody else can be; it never listens.
    """

    def __init__(self, service: V2Service, settings: Settings, bound: socket.socket) -> None:
        self._service = service
        self._settings = settings
        self._bound = bound
        self._credentials = credentials_of(settings)
        self._server: Any = None
        self._stopped = asyncio.Event()
        self._forced = asyncio.Event()

    @property
    def port(self) -> int:
        """The port that was bound."""
        port: int = self._bound.getsockname()[1]
        return port

    def listen(self, flag: str) -> None:
        """Let clients connect; they are served once `run_until_stopped` runs.

        Args:
            flag: The command-line flag that chooses the port, for the error.

        Raises:
            PortInUseError: Somebody else listens there.
        """
        host, port = self._bound.getsockname()[:2]
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._server = grpc.aio.server(options=options_of(self._settings))
        self._server.add_generic_rpc_handlers(self._service.handlers())
        try:
            if self._credentials is None:
                self._server.add_insecure_port(address)
            else:
                self._server.add_secure_port(address, self._credentials)
        except RuntimeError as error:
            raise PortInUseError(f"cannot listen on {address}; choose another port with {flag}") from error

    async def run_until_stopped(self) -> None:
        """Serve; returns when the last answer has been sent."""
        await self._server.start()
        await self._stopped.wait()
        async with asyncio.TaskGroup() as tasks:
            forcing = tasks.create_task(self._force())
            await self._server.stop(_UNTIL_FORCED_S)
            forcing.cancel()

    def stop(self) -> None:
        """Close the listener, let running calls finish; streams read nothing more."""
        self._service.stop()
        self._stopped.set()

    def force(self) -> None:
        """Do not wait for running calls any longer."""
        self.stop()
        self._forced.set()

    async def _force(self) -> None:
        await self._forced.wait()
        await self._server.stop(None)


def options_of(settings: Settings) -> Options:
    """The channel arguments that the settings stand for."""
    options = {
        "grpc.so_reuseport": 0,
        "grpc.max_concurrent_streams": _MAX_CALLS,
        "grpc.max_allowed_incoming_connections": affordable_connections(settings.http_max_connections),
        "grpc.max_receive_message_length": settings.grpc_max_input_size,
        "grpc.max_send_message_length": -1,
        "grpc.keepalive_time_ms": settings.grpc_keepalive_time,
        "grpc.keepalive_timeout_ms": settings.grpc_keepalive_timeout,
        "grpc.keepalive_permit_without_calls": settings.grpc_keepalive_permit_without_calls,
        "grpc.http2.max_pings_without_data": settings.grpc_http2_max_pings_without_data,
        "grpc.http2.min_ping_interval_without_data_ms": settings.grpc_http2_min_recv_ping_interval_without_data,
        "grpc.http2.max_ping_strikes": settings.grpc_http2_max_ping_strikes,
        "grpc.default_compression_level": _LEVELS.index(settings.grpc_infer_response_compression_level),
    }
    if settings.grpc_max_connection_age:
        options["grpc.max_connection_age_ms"] = settings.grpc_max_connection_age
    if settings.grpc_max_connection_age_grace:
        options["grpc.max_connection_age_grace_ms"] = settings.grpc_max_connection_age_grace
    return [(name, int(value)) for name, value in options.items()]


def credentials_of(settings: Settings) -> Any:
    """What encrypts the connections, or None.

    Raises:
        GrpcConfigError: A file cannot be read, holds something else, or is not named.
    """
    is_mutual = settings.grpc_use_ssl_mutual
    if not settings.grpc_use_ssl and not is_mutual:
        return None
    key = _read(settings.grpc_server_key, "--grpc-server-key")
    chain = _read(settings.grpc_server_cert, "--grpc-server-cert")
    roots = _read(settings.grpc_root_cert, "--grpc-root-cert") if is_mutual or settings.grpc_root_cert else None
    _check(settings)
    return grpc.ssl_server_credentials([(key, chain)], roots, require_client_auth=is_mutual)


def _check(settings: Settings) -> None:
    # grpc itself says of wrong files no more than that it cannot listen.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(str(settings.grpc_server_cert), str(settings.grpc_server_key))
    except ssl.SSLError as error:
        why = error.reason or "not in PEM"
        raise GrpcConfigError(
            f"--grpc-server-cert and --grpc-server-key: no pair of certificate and key: {why}"
        ) from None
    if settings.grpc_root_cert:
        try:
            context.load_verify_locations(str(settings.grpc_root_cert))
        except ssl.SSLError as error:
            why = error.reason or "not in PEM"
            raise GrpcConfigError(f"--grpc-root-cert: holds no certificates: {why}") from None


def _read(file: Path | None, flag: str) -> bytes:
    if file is None:
        raise GrpcConfigError(f"gRPC is to be encrypted: give {flag}")
    try:
        return file.read_bytes()
    except OSError as error:
        raise GrpcConfigError(f"{flag}: cannot be read: {error.strerror}") from error
