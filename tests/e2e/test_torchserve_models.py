"""A TorchServe model store behind the whole server: the handlers of its archives answer clients of the v2 protocol."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from textwrap import dedent

import httpx
import pytest

from tests.e2e.server import Server
from tests.models.archives.builders import configured, write_directory, write_zip

pytestmark = pytest.mark.e2e

PHOTO = bytes(range(256)) * 40  # what no text could carry
BATCHES = """\
    from models.colours import name  # not Shoal's package of that name
    from ts.torch_handler.base_handler import BaseHandler

    class Handler(BaseHandler):
        def initialize(self, context):
            self.threshold = context.model_yaml_config["handler"]["threshold"]
        def preprocess(self, data):
            return [bytes(row.get("data") or row.get("body")) for row in data]
        def inference(self, data):
            if b"broken" in data:
                raise ValueError("cannot read this")
            return data
        def postprocess(self, data):
            return [{"length": len(each), "batch": len(data), "of": [name, self.threshold]} for each in data]
    """
REFUSES = """\
    from ts.utils.util import PredictionException

    def handle(data, context):
        if data is not None:
            raise PredictionException("too dark", 422)
    """
CONFIG = """\
batchSize: 4
maxBatchDelay: 300
minWorkers: 1
maxWorkers: 1
handler:
  threshold: 0.5
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("store")
    own = {"models/__init__.py": "", "models/colours.py": "name = 'red'", "handler.py": dedent(BATCHES)}
    write_zip(root / "batches.mar", {**configured(CONFIG, modelName="batches"), **own})
    refuses = configured("batchSize: 1\nminWorkers: 1\nmaxWorkers: 1\n", modelName="refuses")
    write_directory(root / "unpacked", {**refuses, "handler.py": dedent(REFUSES)})
    with Server(f"--model-repository={root}", f"--cache-dir={root.parent / 'cache'}") as server:
        yield server


def ask(server: Server, model: str, *rows: bytes) -> httpx.Response:
    """A request with rows as raw bytes; the answer is JSON."""
    data = b"".join(len(row).to_bytes(4, "little") + row for row in rows)
    described = {"name": "data", "datatype": "BYTES", "shape": [len(rows), 1]}
    head = json.dumps({"inputs": [{**described, "parameters": {"binary_data_size": len(data)}}]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    return server.client.post(f"/v2/models/{model}/infer", content=head + data, headers=headers)


def answers(response: httpx.Response) -> list[object]:
    return [json.loads(element) for element in response.json()["outputs"][0]["data"]]


def test_a_handler_answers_the_bytes_of_a_picture(store: Server) -> None:
    (answer,) = answers(ask(store, "batches", PHOTO))

    assert answer == {"length": len(PHOTO), "batch": 1, "of": ["red", 0.5]}


def test_requests_share_a_batch_and_each_gets_its_own_answer(store: Server) -> None:
    with ThreadPoolExecutor(4) as pool:
        responses = list(pool.map(lambda length: ask(store, "batches", b"x" * length), range(1, 5)))

    found = [answers(response)[0] for response in responses]
    assert [answer["length"] for answer in found] == [1, 2, 3, 4]
    assert max(answer["batch"] for answer in found) > 1


def test_only_the_request_on_which_the_handler_fails_is_answered_with_an_error(store: Server) -> None:
    with ThreadPoolExecutor(4) as pool:
        responses = list(pool.map(lambda row: ask(store, "batches", row), [b"good", b"broken", b"fine", b"well"]))

    assert [response.status_code for response in responses] == [200, 500, 200, 200]
    assert responses[1].json() == {"error": "ValueError: cannot read this (at handler.py:11)"}


def test_a_prediction_exception_is_answered_with_its_status(store: Server) -> None:
    response = ask(store, "refuses", b"night")

    assert (response.status_code, response.json()) == (422, {"error": "too dark"})


def test_the_metadata_names_bytes_in_and_bytes_out(store: Server) -> None:
    metadata = store.client.get("/v2/models/batches").json()

    assert metadata["inputs"] == [{"name": "data", "datatype": "BYTES", "shape": [-1, 1]}]
    assert metadata["outputs"] == [{"name": "response", "datatype": "BYTES", "shape": [-1, 1]}]
