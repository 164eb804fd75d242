"""The container files, read as data; building them needs an engine that tests do not have."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.settings import Settings
from tests.docs.pages import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
STAGES = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]


def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"])


def kubernetes(kind: str) -> dict[str, Any]:
    documents = yaml.safe_load_all((ROOT / "deploy/kubernetes.yaml").read_text())
    return next(dict(document["spec"]) for document in documents if document["kind"] == kind)


def settings_of(arguments: list[str]) -> Settings:
    """What `shoal serve --name=value ...` would be started with; refuses what it would refuse."""
    assert arguments[0] == "serve"
    pairs = (argument.removeprefix("--").split("=", 1) for argument in arguments[1:])
    return Settings(**{name.replace("-", "_"): value for name, value in pairs})  # type: ignore[arg-type]


def pod() -> dict[str, Any]:
    return dict(kubernetes("Deployment")["template"]["spec"])


def build_context() -> set[str]:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    return {line.removeprefix("!").rstrip("/") for line in lines if line.startswith("!")}


def test_the_image_gets_every_package_and_file_that_the_build_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {name.partition(".")[0] for name in project["tool"]["setuptools"]["packages"]}
    files = {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]}

    copied = {
        word.rstrip("/")
        for line in re.findall(r"^COPY (?!--)(.*) \S+$", DOCKERFILE, re.MULTILINE)
        for word in line.split()
    }

    assert copied == packages | files
    assert copied == build_context()


def test_the_image_serves_to_the_outside_as_a_user_without_rights() -> None:
    command = re.search(r"^CMD (\[.*\])$", STAGES[-1], re.MULTILINE)
    assert command is not None

    assert settings_of(yaml.safe_load(command[1])).http_address == "0.0.0.0"
    assert re.search(r"^USER [1-9]\d*$", STAGES[-1], re.MULTILINE)


def test_the_image_exposes_the_ports_that_are_the_defaults() -> None:
    settings = Settings()

    assert f"EXPOSE {settings.http_port} {settings.grpc_port} {settings.metrics_port}\n" in STAGES[-1]


def test_the_image_installs_nothing_but_the_base() -> None:
    installed = re.findall(r"pip install (.*)$", DOCKERFILE, re.MULTILINE)

    assert installed == ["--no-cache-dir ."]


@pytest.mark.slow
def test_the_images_build_step_makes_the_built_in_model(tmp_path: Path) -> None:
    step = re.search(r'^RUN \["/opt/shoal/bin/python", "-c", "(.*)"\]$', STAGES[0], re.MULTILINE)
    assert step is not None

    subprocess.run([sys.executable, "-c", step[1]], env={"SHOAL_CACHE_DIR": str(tmp_path)}, cwd=ROOT, check=True)

    assert list(tmp_path.glob("*/efficientnet-lite0/1/model.onnx"))


def test_both_stages_agree_on_where_the_built_in_model_is() -> None:
    assert re.findall(r"SHOAL_CACHE_DIR=(\S+)", DOCKERFILE) == ["/opt/shoal/cache"] * 2


def test_compose_serves_and_prometheus_scrapes_the_metrics_port() -> None:
    settings = settings_of(compose()["shoal"]["command"])
    scraping = yaml.safe_load((ROOT / "deploy/prometheus.yml").read_text())
    targets = scraping["scrape_configs"][0]["static_configs"][0]["targets"]

    assert targets == [f"shoal:{settings.metrics_port}"]
    assert settings.http_address == "0.0.0.0"


def test_compose_mounts_files_that_exist() -> None:
    sources = [volume.split(":")[0] for service in compose().values() for volume in service.get("volumes", ())]

    assert sources == ["./prometheus.yml"]
    assert all((ROOT / "deploy" / source).is_file() for source in sources)


def test_compose_gives_the_server_time_to_finish() -> None:
    service = compose()["shoal"]
    settings = settings_of(service["command"])

    assert int(service["stop_grace_period"].rstrip("s")) > settings.drain_lead_secs + settings.exit_timeout_secs


def test_kubernetes_gives_the_server_time_to_finish() -> None:
    settings = settings_of(pod()["containers"][0]["args"])

    assert pod()["terminationGracePeriodSeconds"] > settings.drain_lead_secs + settings.exit_timeout_secs


def test_kubernetes_stops_routing_before_the_lead_is_over() -> None:
    container = pod()["containers"][0]
    probe = container["readinessProbe"]

    assert probe["periodSeconds"] * probe["failureThreshold"] < settings_of(container["args"]).drain_lead_secs


@pytest.mark.parametrize(
    ("probe", "path"),
    [("readinessProbe", "ready"), ("livenessProbe", "live"), ("startupProbe", "live")],
)
def test_kubernetes_probes_what_the_server_answers(probe: str, path: str) -> None:
    container = pod()["containers"][0]

    assert container[probe]["httpGet"] == {"path": f"/v2/health/{path}", "port": "http"}


def test_kubernetes_names_the_ports_that_the_server_opens() -> None:
    container = pod()["containers"][0]
    settings = settings_of(container["args"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    routed = {port["targetPort"] for port in kubernetes("Service")["ports"]}

    assert ports == {"http": settings.http_port, "grpc": settings.grpc_port, "metrics": settings.metrics_port}
    assert routed == set(ports)
