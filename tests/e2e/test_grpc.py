"""gRPC of a real server process: its port, its end, its encryption."""

import shutil
import signal
import socket
import subprocess
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from gateway.grpc_v2.server import GrpcConfigError, credentials_of
from gateway.settings import Settings
from tests.e2e.models import add_echo
from tests.e2e.server import Server, wait_until

pytestmark = pytest.mark.e2e

SLOW_US = 400_000
ROW = np.float32([[1, 2]]).tobytes()


def request(model: str = "echo") -> Any:
    tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=(1, 2))
    return pb.ModelInferRequest(model_name=model, inputs=[tensor], raw_input_contents=[ROW])


def stub_of(channel: Any) -> Any:
    return service_pb2_grpc.GRPCInferenceServiceStub(channel)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "models"
    root.mkdir()
    add_echo(root, "slow", base_us=SLOW_US)
    return add_echo(root, "echo")


def running_request(server: Server, stub: Any) -> "Future[Any]":
    """A request that an instance is working on."""
    call: Future[Any] = stub.ModelInfer.future(request("slow"))
    wait_until(lambda: server.metric("shoal_running_batches", model="slow") == 1, "the slow request to run")
    return call


def test_a_server_that_ends_finishes_calls_and_closes_streams(repository: Path) -> None:
    with (
        Server(f"--model-repository={repository}") as server,
        grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel,
    ):
        stub = stub_of(channel)
        more: Future[None] = Future()

        def requests() -> Any:
            yield request()
            more.result()  # a client that keeps its stream

        stream = stub.ModelStreamInfer(requests())
        streamed = next(stream)
        running = running_request(server, stub)
        server.send_signal(signal.SIGTERM)

        with pytest.raises(grpc.RpcError) as caught:
            next(stream)
        more.set_result(None)
        answer = running.result()
        code = server.exit_code()

    assert streamed.infer_response.raw_output_contents[0] == ROW
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.UNAVAILABLE, "Server exiting")  # type: ignore[attr-defined]
    assert (answer.raw_output_contents[0], code) == (ROW, 0)
    assert "Traceback" not in server.log


def test_a_call_that_is_cancelled_withdraws_its_request(repository: Path) -> None:
    with (
        Server(f"--model-repository={repository}") as server,
        grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel,
    ):
        running_request(server, stub_of(channel)).cancel()

        canceled = {"model": "slow", "version": "1", "reason": "CANCELED"}
        wait_until(lambda: server.metric("nv_inference_request_failure", **canceled) == 1, "it to be withdrawn")


def test_without_grpc_there_is_no_port_for_it(repository: Path) -> None:
    with Server(f"--model-repository={repository}", "--allow-grpc=false") as server:
        assert (server.grpc_port, server.logged("listening")["grpc_port"]) == (0, None)


def test_a_port_in_use_is_told_before_anything_is_loaded(repository: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        flag = f"--grpc-port={taken.getsockname()[1]}"
        with pytest.raises(AssertionError, match="choose another port with --grpc-port"):
            Server(f"--model-repository={repository}", flag).__enter__()


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for this machine, signed by itself."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    directory = tmp_path_factory.mktemp("keys")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=directory, check=True, capture_output=True,
    )  # fmt: skip
    return directory


def test_calls_are_encrypted_and_clients_may_need_a_certificate(repository: Path, keys: Path) -> None:
    key, cert = (keys / name for name in ("key.pem", "cert.pem"))
    flags = (
        f"--model-repository={repository}", "--grpc-use-ssl-mutual=true", f"--grpc-server-key={key}",
        f"--grpc-server-cert={cert}", f"--grpc-root-cert={cert}",
    )  # fmt: skip
    known = grpc.ssl_channel_credentials(cert.read_bytes(), key.read_bytes(), cert.read_bytes())
    unknown = grpc.ssl_channel_credentials(cert.read_bytes())
    with Server(*flags) as server:
        target = f"127.0.0.1:{server.grpc_port}"
        with grpc.secure_channel(target, known) as channel:
            answer = stub_of(channel).ModelInfer(request())
        codes = [
            code_without(channel) for channel in (grpc.secure_channel(target, unknown), grpc.insecure_channel(target))
        ]

    assert answer.raw_output_contents[0] == ROW
    assert codes == [grpc.StatusCode.UNAVAILABLE] * 2


def test_roots_that_are_no_certificates_are_told_by_their_flag(keys: Path) -> None:
    flags = {"grpc_server_key": keys / "key.pem", "grpc_server_cert": keys / "cert.pem"}

    with pytest.raises(GrpcConfigError, match="--grpc-root-cert: holds no certificates"):
        credentials_of(Settings(grpc_use_ssl=True, grpc_root_cert=Path(__file__), **flags))


def code_without(channel: Any) -> Any:
    with channel, pytest.raises(grpc.RpcError) as caught:
        stub_of(channel).ModelInfer(request(), timeout=20)
    return caught.value.code()  # type: ignore[attr-defined]
