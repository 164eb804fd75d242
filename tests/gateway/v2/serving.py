"""A real v2 server on a loopback port, and the same application without a socket."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import uvicorn

from gateway.control_access import GuardedControl
from gateway.v2.app import V2Surface
from gateway.v2.limits import V2Limits
from gateway.v2.shared_memory import SharedMemory
from gateway.v2.surface_settings import SurfaceSettings
from tests.gateway.fake_engine import FakeEngine


def make_surface(
    engine: FakeEngine,
    control: GuardedControl | None = None,
    memory: SharedMemory | None = None,
    settings: SurfaceSettings | None = None,
    **limits: int,
) -> V2Surface:
    return V2Surface(
        engine,
        V2Limits(**limits),
        offload=asyncio.to_thread,
        server_version="1.2.3",
        control=control,
        memory=memory,
        settings=settings,
    )


def client_of(
    engine: FakeEngine,
    control: GuardedControl | None = None,
    memory: SharedMemory | None = None,
    settings: SurfaceSettings | None = None,
    **limits: int,
) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=make_surface(engine, control, memory, settings, **limits))
    return httpx.AsyncClient(transport=transport, base_url="http://shoal", headers={"accept-encoding": "identity"})


@contextmanager
def served(engine: FakeEngine, control: GuardedControl | None = None, **limits: int) -> Iterator[int]:
    """Serve from a thread; yields the port. Connections queue in the listening socket until the server accepts."""
    config = uvicorn.Config(make_surface(engine, control, **limits), lifespan="off", ws="none", log_config=None)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()
