"""Tensors in shared memory, as the unmodified Triton client makes and registers it, against the whole server."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException, serialize_byte_tensor
from tritonclient.utils import shared_memory as shm

from tests.e2e.models import add_echo
from tests.e2e.server import Server
from tests.gateway.v2.segments import DIRECTORY, cut_off, needs_shared_memory

pytestmark = [pytest.mark.e2e, needs_shared_memory]

ROWS = np.arange(8, dtype=np.float32).reshape(4, 2)
LARGE = np.arange(400_000, dtype=np.float32).reshape(200_000, 2)  # more than is read on the event loop


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("repository")
    add_echo(root, "echo")
    add_echo(root, "large", max_batch_size=len(LARGE))
    add_echo(root, "texts", data_type="TYPE_STRING")
    with Server(f"--model-repository={root}", "--allow-client-shm=true") as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
        yield client


class Memory:
    """A registered region that the client library has made."""

    def __init__(self, client: triton.InferenceServerClient, size_bytes: int) -> None:
        self.name = f"region-{uuid4().hex}"
        self.key = f"shoal-test-{uuid4().hex}"
        self.size_bytes = size_bytes
        self.handle = shm.create_shared_memory_region(self.name, self.key, size_bytes)
        client.register_system_shared_memory(self.name, self.key, size_bytes)

    def fill(self, *arrays: np.ndarray, offset: int = 0) -> None:
        shm.set_shared_memory_region(self.handle, arrays, offset)

    def read(self, dtype: Any, shape: tuple[int, ...], offset: int = 0) -> np.ndarray:
        return np.array(shm.get_contents_as_numpy(self.handle, dtype, shape, offset))


@contextmanager
def shared(client: triton.InferenceServerClient, size_bytes: int) -> Iterator[Memory]:
    memory = Memory(client, size_bytes)
    try:
        yield memory
    finally:
        client.unregister_system_shared_memory(memory.name)
        shm.destroy_shared_memory_region(memory.handle)


@pytest.fixture
def memory(client: triton.InferenceServerClient) -> Iterator[Memory]:
    with shared(client, 4096) as made:
        yield made


def input_in(region: str, shape: tuple[int, ...], size_bytes: int, offset: int = 0, datatype: str = "FP32") -> Any:
    tensor = triton.InferInput("x", shape, datatype)
    tensor.set_shared_memory(region, size_bytes, offset)
    return tensor


def output_in(region: str, size_bytes: int, offset: int = 0) -> Any:
    output = triton.InferRequestedOutput("y")
    output.set_shared_memory(region, size_bytes, offset)
    return output


def refusal(call: Any) -> tuple[str, str]:
    with pytest.raises(InferenceServerException) as caught:
        call()
    return caught.value.status(), caught.value.message()


def test_input_and_output_in_shared_memory(client, memory: Memory) -> None:
    memory.fill(ROWS)

    result = client.infer("echo", [input_in(memory.name, ROWS.shape, 32)], outputs=[output_in(memory.name, 64, 2048)])

    np.testing.assert_array_equal(memory.read(np.float32, ROWS.shape, 2048), ROWS)
    assert result.get_output("y") == {"name": "y", "datatype": "FP32", "shape": [4, 2]}


def test_only_the_input_in_shared_memory(client, memory: Memory) -> None:
    memory.fill(ROWS, offset=64)

    result = client.infer("echo", [input_in(memory.name, ROWS.shape, 32, offset=64)])

    np.testing.assert_array_equal(result.as_numpy("y"), ROWS)


@pytest.mark.parametrize("is_binary", [True, False], ids=["binary", "JSON"])
def test_only_the_output_in_shared_memory(client, memory: Memory, is_binary: bool) -> None:
    tensor = triton.InferInput("x", ROWS.shape, "FP32")
    tensor.set_data_from_numpy(ROWS, binary_data=is_binary)

    client.infer("echo", [tensor], outputs=[output_in(memory.name, 32)])

    np.testing.assert_array_equal(memory.read(np.float32, ROWS.shape), ROWS)


def test_strings_in_shared_memory(client, memory: Memory) -> None:
    words = np.array([[b"", "é".encode()]], dtype=np.object_)
    packed = serialize_byte_tensor(words)
    memory.fill(packed)
    size_bytes = len(packed.item())

    client.infer(
        "texts",
        [input_in(memory.name, words.shape, size_bytes, datatype="BYTES")],
        outputs=[output_in(memory.name, 100, 2048)],
    )

    assert memory.read(np.object_, words.shape, 2048).tolist() == words.tolist()


def test_more_than_is_copied_on_the_event_loop(client) -> None:
    with shared(client, 2 * LARGE.nbytes) as memory:
        memory.fill(LARGE)

        client.infer(
            "large",
            [input_in(memory.name, LARGE.shape, LARGE.nbytes)],
            outputs=[output_in(memory.name, LARGE.nbytes, LARGE.nbytes)],
        )

        np.testing.assert_array_equal(memory.read(np.float32, LARGE.shape, LARGE.nbytes), LARGE)


def test_a_region_registered_over_http_is_used_over_grpc(server: Server, memory: Memory) -> None:
    memory.fill(ROWS)
    tensor = tritonclient.grpc.InferInput("x", ROWS.shape, "FP32")
    tensor.set_shared_memory(memory.name, 32)
    output = tritonclient.grpc.InferRequestedOutput("y")
    output.set_shared_memory(memory.name, 32, 64)

    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        result = client.infer("echo", [tensor], outputs=[output])
        regions = client.get_system_shared_memory_status(memory.name, as_json=True)["regions"]

    np.testing.assert_array_equal(memory.read(np.float32, ROWS.shape, 64), ROWS)
    assert list(result.get_output("y").shape) == [4, 2]
    assert regions == {memory.name: {"name": memory.name, "key": memory.key, "byte_size": "4096"}}


def test_a_region_registered_over_grpc_is_used_over_http(client, server: Server) -> None:
    name, key = f"region-{uuid4().hex}", f"shoal-test-{uuid4().hex}"
    handle = shm.create_shared_memory_region(name, key, 4096)
    try:
        with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as grpc_client:
            grpc_client.register_system_shared_memory(name, key, 4096)
            shm.set_shared_memory_region(handle, [ROWS])
            result = client.infer("echo", [input_in(name, ROWS.shape, 32)])
            grpc_client.unregister_system_shared_memory(name)
    finally:
        shm.destroy_shared_memory_region(handle)

    np.testing.assert_array_equal(result.as_numpy("y"), ROWS)
    assert refusal(lambda: client.infer("echo", [input_in(name, ROWS.shape, 32)]))[0] == "404"


def test_the_status_lists_what_is_registered(client, memory: Memory) -> None:
    expected = {"name": memory.name, "key": memory.key, "offset": 0, "byte_size": 4096}

    assert client.get_system_shared_memory_status(memory.name) == [expected]
    assert expected in client.get_system_shared_memory_status()


def test_an_unknown_region_is_404(client) -> None:
    assert refusal(lambda: client.infer("echo", [input_in("nothing", ROWS.shape, 32)])) == (
        "404",
        "Unable to find shared memory region: 'nothing'",
    )


def test_an_unknown_region_of_an_output_is_404_before_anything_runs(client, server: Server, memory: Memory) -> None:
    before = server.stats("echo")["inference_count"]
    tensor = input_in(memory.name, ROWS.shape, 32)

    found = refusal(lambda: client.infer("echo", [tensor], outputs=[output_in("nothing", 32)]))

    assert found == ("404", "Unable to find shared memory region: 'nothing'")
    assert server.stats("echo")["inference_count"] == before


@pytest.mark.parametrize(
    ("size_bytes", "offset", "text"),
    [
        (32, 4096, "Invalid offset for shared memory region: '{}'"),
        (32, 4095, "Invalid offset + byte size for shared memory region: '{}'"),
        (5000, 0, "Invalid offset + byte size for shared memory region: '{}'"),
    ],
)
def test_places_outside_the_region_are_400(client, memory: Memory, size_bytes: int, offset: int, text: str) -> None:
    tensor, inside = input_in(memory.name, ROWS.shape, size_bytes, offset), input_in(memory.name, ROWS.shape, 32)
    output = output_in(memory.name, size_bytes, offset)

    refusals = [
        refusal(lambda: client.infer("echo", [tensor])),
        refusal(lambda: client.infer("echo", [inside], outputs=[output])),
    ]

    assert refusals == [("400", text.format(memory.name))] * 2


def test_an_input_of_another_size_than_its_shape_is_400(client, memory: Memory) -> None:
    status, text = refusal(lambda: client.infer("echo", [input_in(memory.name, ROWS.shape, 31)]))

    assert status == "400"
    assert text == (
        "[request id: <id_unknown>] input byte size mismatch for input 'x' for model 'echo'. Expected 32, got 31"
    )


def test_an_output_that_does_not_fit_is_500(client, memory: Memory) -> None:
    tensor, output = input_in(memory.name, ROWS.shape, 32), output_in(memory.name, 31, 64)

    assert refusal(lambda: client.infer("echo", [tensor], outputs=[output])) == (
        "500",
        "shared memory size specified with the request for output 'y' (31 bytes) should be at least 32 bytes to hold "
        "the results",
    )


@pytest.mark.parametrize("extra", [{"binary_data": True}, {"classification": 1}, {"classification": 0}])
def test_an_output_goes_to_one_place_only(server: Server, memory: Memory, extra: dict[str, Any]) -> None:
    place = {"shared_memory_region": memory.name, "shared_memory_byte_size": 32}
    body = {
        "inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}],
        "outputs": [{"name": "y", "parameters": {**place, **extra}}],
    }

    answer = server.client.post("/v2/models/echo/infer", json=body)

    text = f"Output can't set both 'shared_memory_region' and '{next(iter(extra))}'"
    assert (answer.status_code, answer.json()) == (400, {"error": text})


@pytest.mark.parametrize("extra", [{"data": [1, 2]}, {"parameters": {"binary_data_size": 8}}])
def test_an_input_comes_from_one_place_only(server: Server, memory: Memory, extra: dict[str, Any]) -> None:
    place = {"shared_memory_region": memory.name, "shared_memory_byte_size": 8, **extra.get("parameters", {})}
    tensor = {"name": "x", "shape": [1, 2], "datatype": "FP32", **extra, "parameters": place}

    answer = server.client.post("/v2/models/echo/infer", json={"inputs": [tensor]})

    assert answer.status_code == 400
    assert answer.json()["error"].startswith("Input must set only one of the following fields: ")


def test_memory_that_its_client_cut_off_is_400_and_the_server_lives(client, server: Server) -> None:
    with shared(client, 8192) as memory:
        memory.fill(ROWS, offset=4096)
        inside, outside = (input_in(memory.name, ROWS.shape, 32, offset) for offset in (0, 4096))
        path = DIRECTORY / memory.key
        cut_off(path, 4096)

        found = [
            refusal(lambda: client.infer("echo", [outside])),
            refusal(lambda: client.infer("echo", [inside], outputs=[output_in(memory.name, 32, 4096)])),
        ]

        text = f"Invalid offset + byte size for shared memory region: '{memory.name}'"
        assert found == [("400", text)] * 2
        assert path.stat().st_size == 4096
        assert client.infer("echo", [inside]).as_numpy("y").tolist() == [[0, 0]] * 4
    assert server.is_running()


def test_clients_that_cut_off_and_unregister_while_others_infer_harm_nobody(server: Server) -> None:
    with triton.InferenceServerClient(f"127.0.0.1:{server.port}") as owner, shared(owner, 8192) as memory:
        texts: set[str] = set()
        answered = threading.Event()
        users = [threading.Thread(target=use, args=(server, memory, texts, answered)) for _ in range(3)]
        for user in users:
            user.start()

        path = DIRECTORY / memory.key
        while any(user.is_alive() for user in users):
            trouble(owner, memory, path)
            answered.set()

    assert texts <= {
        "answered",
        f"Unable to find shared memory region: '{memory.name}'",
        f"Invalid offset + byte size for shared memory region: '{memory.name}'",
    }
    assert server.is_running()
    assert "Traceback" not in server.log


def trouble(owner: triton.InferenceServerClient, memory: Memory, path: Path) -> None:
    cut_off(path, 0)
    cut_off(path, memory.size_bytes)
    owner.unregister_system_shared_memory(memory.name)
    owner.register_system_shared_memory(memory.name, memory.key, memory.size_bytes)


def use(server: Server, memory: Memory, texts: set[str], go: threading.Event) -> None:
    go.wait()
    tensor, output = input_in(memory.name, ROWS.shape, 32, 4096), output_in(memory.name, 32, 64)
    with triton.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
        for _ in range(100):
            try:
                client.infer("echo", [tensor], outputs=[output])
                texts.add("answered")
            except InferenceServerException as error:
                texts.add(error.message())


def test_a_server_without_the_flag_refuses_to_register(zoo: Server) -> None:
    with triton.InferenceServerClient(f"127.0.0.1:{zoo.port}") as client:
        found = [
            refusal(lambda: client.register_system_shared_memory("r", "k", 1)),
            refusal(client.unregister_system_shared_memory),
            refusal(client.unregister_cuda_shared_memory),
        ]

        text = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
        assert found == [("501", text)] * 3
        assert client.get_system_shared_memory_status() == []
