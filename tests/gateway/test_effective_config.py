"""The configuration in force, over HTTP."""

from pathlib import Path

import pytest
from typing_extensions import override

from models.spec import ModelSpec
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.serving import client_of, echo, serving
from tests.models.builders import FAKE, spec_of, write_model


class OneModel(FakeEngine):
    """Has a model that was read from a directory, too."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self._spec = spec

    @override
    def model(self, model: str, version: int | None = None) -> ModelSpec:
        return self._spec if (model, version) in {("m", None), ("m", 1)} else super().model(model, version)


@pytest.fixture
def spec(tmp_path: Path) -> ModelSpec:
    return spec_of(write_model(tmp_path, FAKE, "[batching]\nmax_queue_rows = 99\n"))


async def test_the_configuration_in_force_is_answered_with_its_sources(spec: ModelSpec) -> None:
    async with client_of(OneModel(spec)) as client:
        answer = (await client.get("/models/m/config")).json()

    assert (answer["model"], answer["version"], answer["config"]["max_batch_size"]) == ("m", "1", 8)
    assert answer["shoal"]["batching"]["max_queue_rows"] == 99
    assert answer["shoal"]["batching"]["max_queue_requests"] == 1024
    assert answer["sources"]["max_batch_size"] == "config.pbtxt:2"
    assert answer["sources"]["shoal.batching.max_queue_rows"] == "shoal.toml:2"


async def test_its_texts_lead_to_the_same_version(spec: ModelSpec, tmp_path: Path) -> None:
    async with client_of(OneModel(spec)) as client:
        answer = (await client.get("/models/m/config")).json()

    (tmp_path / "m/config.pbtxt").write_text(answer["pbtxt"])
    (tmp_path / "m/shoal.toml").write_text(answer["shoal_toml"])

    assert spec_of(tmp_path / "m") == spec


async def test_what_runs_is_told_beside_what_was_configured() -> None:
    async with serving(echo()) as service, client_of(service) as client:
        running = (await client.get("/models/echo/config")).json()["running"]

    assert running == {"instances": [{"name": "echo_0", "device": "cpu", "state": "ready"}], "devices": ["cpu"]}


async def test_it_shows_no_path_of_the_machine(spec: ModelSpec, tmp_path: Path) -> None:
    async with client_of(OneModel(spec)) as client:
        text = (await client.get("/models/m/config")).text

    assert str(tmp_path) not in text


@pytest.mark.parametrize(
    "target", ["/models/nobody/config", "/models/m/config?version=7", "/models/m/config?version=x"]
)
async def test_what_is_not_there_is_not_found(spec: ModelSpec, target: str) -> None:
    async with client_of(OneModel(spec)) as client:
        response = await client.get(target)

    assert response.status_code == 404
    assert "is not found" in response.json()["error"]
