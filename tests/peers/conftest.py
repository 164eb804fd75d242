"""Both servers, started once."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from loadtest.peers import triton
from tests.e2e.server import Server
from tests.peers import repository
from tests.peers.cases.guarded import FLAGS
from tests.peers.cases.regions import KEY, SIZE_BYTES, TWO
from tests.peers.grpc_cases import Client

# Triton 2.51 always allows what this flag allows.
SHOAL_ONLY = "--allow-client-shm=true"


class Pair(NamedTuple):
    """Shoal and Triton with the same models and flags."""

    shoal: Server
    triton: triton.Triton
    shoal_grpc: Client
    triton_grpc: Client


@contextmanager
def both(root: Path, flags: Sequence[str]) -> Iterator[Pair]:
    """Start both at the same time; whoever is first waits."""
    if not triton.is_installed():
        pytest.skip("no tritonserver in .peers: run `make peers`")
    with ExitStack() as stack, ThreadPoolExecutor() as threads:
        servers = (Server(f"--model-repository={root}", SHOAL_ONLY, *flags), triton.serving(root, *flags))
        ours, theirs = (threads.submit(stack.enter_context, server) for server in servers)
        shoal, peer = ours.result(), theirs.result()
        clients = (stack.enter_context(Client(port)) for port in (shoal.grpc_port, peer.grpc_port))
        yield Pair(shoal, peer, *clients)


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    root = repository.write(tmp_path_factory.mktemp("models"))
    loaded = (f"--load-model={name}" for name in repository.MODELS if name not in repository.UNLOADED)
    with both(root, ("--model-control-mode=explicit", *loaded)) as pair:
        yield pair


@pytest.fixture(scope="session")
def segment() -> Iterator[None]:
    path = Path("/dev/shm") / KEY[1:]  # noqa: S108 - where the system keeps shared memory
    path.write_bytes(TWO * (SIZE_BYTES // len(TWO)))
    yield
    path.unlink()


@pytest.fixture(scope="session")
def guarded_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    root = repository.write(tmp_path_factory.mktemp("guarded"), "shows")
    with both(root, FLAGS) as pair:
        yield pair


@pytest.fixture(scope="session")
def loading_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    root = repository.write(tmp_path_factory.mktemp("loads"), "single", "lent", "broken")
    with both(root, ("--model-control-mode=explicit", "--load-model=single")) as pair:
        yield pair
