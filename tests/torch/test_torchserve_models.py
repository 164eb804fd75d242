"""A TorchServe model store with a network in it, behind the whole server."""

import io
import json
import warnings
from pathlib import Path

import pytest

from tests.e2e.server import Server
from tests.images.pictures import encoded, photo
from tests.models.archives.builders import configured, write_zip

torch = pytest.importorskip("torch", reason="needs PyTorch (make test-torch)")
pytest.importorskip("torchvision")

pytestmark = [pytest.mark.torch, pytest.mark.e2e]


def script() -> bytes:
    """Six classes, of which 4 is by far the most probable."""
    network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, 6))
    stream = io.BytesIO()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network[2].bias[4] = 100
        torch.jit.save(torch.jit.trace(network.eval(), torch.zeros(1, 3, 224, 224)), stream)
    return stream.getvalue()


def test_a_photograph_posted_to_the_built_in_classifier_is_answered_with_names_and_probabilities(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store"
    store.mkdir()
    config = "batchSize: 2\nmaxBatchDelay: 1\nminWorkers: 1\nmaxWorkers: 1\n"
    manifest = {"modelName": "drums", "handler": "image_classifier", "serializedFile": "network.pt"}
    names = json.dumps({str(index): f"drum {index}" for index in range(6)})
    content = {**configured(config, **manifest), "network.pt": script(), "index_to_name.json": names}
    write_zip(store / "drums.mar", content)
    picture = encoded(photo(320, 240), "JPEG")
    data = len(picture).to_bytes(4, "little") + picture
    described = {"name": "data", "datatype": "BYTES", "shape": [1, 1], "parameters": {"binary_data_size": len(data)}}
    head = json.dumps({"inputs": [described]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}

    with Server(f"--model-repository={store}", f"--cache-dir={tmp_path / 'cache'}", wait=False) as server:
        server.logged("started", within_s=50)  # importing PyTorch may take long
        response = server.client.post("/v2/models/drums/infer", content=head + data, headers=headers)

    answer = json.loads(response.json()["outputs"][0]["data"][0])
    assert len(answer) == 5
    assert next(iter(answer.items())) == ("drum 4", pytest.approx(1.0))
