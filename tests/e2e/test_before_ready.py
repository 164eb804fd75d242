"""What a version has to pass before it serves: its warm-up requests, and its golden photographs."""

import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import GOOD_PHOTO
from tests.e2e.models import add_echo, add_mirror
from tests.e2e.server import COMMAND, PATIENCE_S, ROOT, Server
from tests.e2e.wire import classified

pytestmark = pytest.mark.e2e

WARM_UP = """
model_warmup {
  name: "zeros" batch_size: 2 inputs { key: "x" value { data_type: TYPE_FP32 dims: [ 2 ] zero_data: true } }
}
parameters { key: "fail_on_value" value: { string_value: "0" } }
"""


def test_a_version_that_fails_on_its_warm_up_request_is_not_served_and_says_which(tmp_path: Path) -> None:
    add_echo(tmp_path, "failing", data_type="TYPE_FP32", more=WARM_UP)
    add_echo(tmp_path, "fine")

    with Server(f"--model-repository={tmp_path}") as server:
        ready = {model["name"]: model["ready"] for model in server.client.get("/models").json()}
        log = server.log

    assert ready == {"failing": False, "fine": True}
    assert "the request 'zeros' of model_warmup failed: input 'x' contains 0.0" in log


def test_a_version_that_makes_other_rows_of_its_golden_photographs_is_not_served_and_says_why(tmp_path: Path) -> None:
    add_mirror(tmp_path, "mirror")
    (tmp_path / "photo.jpg").write_bytes(GOOD_PHOTO)
    side = tmp_path / "mirror" / "shoal.toml"
    record = [*COMMAND, "golden", str(tmp_path / "mirror"), str(tmp_path / "photo.jpg")]
    subprocess.run(record, cwd=ROOT, check=True, capture_output=True, timeout=PATIENCE_S)
    (tmp_path / "photo.jpg").unlink()

    with Server(f"--model-repository={tmp_path}") as server:
        as_recorded = classified(server.client.post("/classify/mirror", content=GOOD_PHOTO))
    side.write_text(side.read_text() + 'colour = "BGR"\n')
    with Server(f"--model-repository={tmp_path}") as server:
        ready = server.client.get("/models").json()[0]["ready"]
        log = server.log

    assert len(as_recorded) == 5
    assert not ready
    assert "photograph 'golden/photo.jpg': channel " in log
    assert "red and blue are swapped" in log
