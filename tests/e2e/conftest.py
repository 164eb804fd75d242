"""Servers that several modules share. Whoever counts uses a model of its own."""

from collections.abc import Iterator

import pytest

from tests.e2e.models import add_echo, add_mirror
from tests.e2e.server import ROOT, Server
from tests.e2e.wire import classified, echoed, infer_body
from tests.images.pictures import encoded, photo

PHOTOS = ROOT / ".cache/foolbox/foolbox/data"
GOOD_PHOTO = encoded(photo(64, 48), "JPEG")


@pytest.fixture(scope="session")
def photos() -> list[tuple[int, bytes]]:
    """20 photographs, each with the number of its class in ImageNet."""
    files = sorted(PHOTOS.glob("imagenet_*.jpg"))
    if not files:
        pytest.fail("no labelled photographs in .cache/foolbox: run `make photos` (after removing .cache/foolbox)")
    return [(int(file.stem.rpartition("_")[2]), file.read_bytes()) for file in files]


@pytest.fixture(scope="session")
def lite0() -> Iterator[Server]:
    """Serves the embedded model."""
    with Server() as server:
        yield server


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serves fake models: `echo`, `refusing` and `splitting` batches of five rows, `mirror` and `exif-blind`."""
    root = tmp_path_factory.mktemp("zoo")
    add_echo(root, "echo")
    add_echo(root, "refusing", max_batch_size=5)
    add_echo(root, "splitting", max_batch_size=5, batching='oversize = "split"')
    add_mirror(root, "mirror")
    add_mirror(root, "exif-blind", exif="ignore")
    with Server(f"--model-repository={root}") as server:
        yield server


def assert_unharmed(server: Server) -> None:
    """It is the same process with its one listener, and 20 good requests succeed."""
    assert server.is_running()
    assert server.listeners() == 1
    for number in range(10):
        answer = server.client.post("/v2/models/echo/infer", json=infer_body(number))
        assert echoed(answer.json()) == [number]
        assert len(classified(server.client.post("/classify/mirror", content=GOOD_PHOTO))) == 5
    assert "Traceback" not in server.log


@pytest.fixture
def unharmed(zoo: Server) -> Iterator[Server]:
    """The zoo, which must be as well after the test as before."""
    yield zoo
    assert_unharmed(zoo)
