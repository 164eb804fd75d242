"""The tables of docs/reference.md beside the code."""

import asyncio
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pydantic_core import PydanticUndefined
from typer.main import get_command

from gateway import cli
from gateway.app import create_rest_app
from gateway.catalogue import Catalogue
from gateway.classify import ClassifyLimits, ClassifySurface
from gateway.errors import CLASSIFY_ERRORS, V2_ERRORS
from gateway.metrics import Snapshot, render_metrics
from gateway.refused_flags import UNOFFERED
from gateway.service import InferenceService
from gateway.settings import Settings
from models.preprocessing import Preprocessing
from models.side_file import BatchingTable, ExecutionTable, GoldenTable, OutputTable, SideTables
from models.spec import BatchingSpec, ExecutionSpec
from tests.docs.pages import PAGES, ROOT, prose_of, table_of

if TYPE_CHECKING:
    from pydantic import BaseModel

PAGE = ROOT / "docs/reference.md"


def shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return str(list(value)) if value else "none"
    return "~/.cache/shoal" if value is PydanticUndefined else str(value)


def test_every_flag_is_listed_with_its_variable_default_and_meaning() -> None:
    expected = [
        [f"--{name.replace('_', '-')}", f"SHOAL_{name.upper()}", shown(field.default), field.description]
        for name, field in Settings.model_fields.items()
    ]

    assert table_of(PAGE, "Flags of `shoal serve`") == expected


def test_every_flag_that_a_page_names_is_one_of_the_command() -> None:
    command = get_command(cli.app)
    known = {name.rstrip("*") for entry in UNOFFERED for name in entry.names}  # refused by name
    known |= {option for place in (command, *command.commands.values()) for option in options_of(place)}
    named = {flag for page in PAGES for flag in re.findall(r"`(--[a-z][a-z0-9-]*)", prose_of(page))}

    assert named
    assert named - known == set()


def options_of(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts} | {"--help"}


def test_every_command_is_in_the_readme() -> None:
    listed = {row[0].split()[1] for row in table_of(ROOT / "README.md", "The command")}

    assert listed - {"--version"} == set(get_command(cli.app).commands)


def test_repositories_come_from_the_environment_as_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    example = re.search(r"`SHOAL_MODEL_REPOSITORY=(.*?)`", PAGE.read_text())
    assert example is not None

    monkeypatch.setenv("SHOAL_MODEL_REPOSITORY", example[1])

    assert Settings().model_repository == ("repo", "other")


def test_every_endpoint_is_listed() -> None:
    paths = create_openapi()["paths"]
    expected = {(method.upper(), path) for path, methods in paths.items() for method in methods}

    assert {(method, path) for method, path, _ in table_of(PAGE, "Endpoints")} == expected


def create_openapi() -> dict[str, Any]:
    engine = InferenceService(Catalogue())
    surface = ClassifySurface(engine, ClassifyLimits(), offload=asyncio.to_thread)
    return create_rest_app(engine, surface, "1.2.3").openapi()


def test_every_error_is_listed_with_its_codes() -> None:
    expected = {
        error.__name__: [str(V2_ERRORS[error].status), str(row.status), str(row.retry_after_s or "-")]
        for error, row in CLASSIFY_ERRORS.items()
    }

    assert {name: codes for name, *codes, _ in table_of(PAGE, "Errors")} == expected


def test_every_metric_is_listed_with_its_type() -> None:
    text = render_metrics(Snapshot.of(InferenceService(Catalogue()))).decode()
    expected = dict(re.findall(r"^# TYPE (\S+) (\w+)$", text, re.MULTILINE))

    assert {name: kind for name, kind, *_ in table_of(PAGE, "Metrics")} == expected


def test_every_key_of_the_side_file_is_listed() -> None:
    listed = [key for key, *_ in table_of(PAGE, "shoal.toml")]

    assert listed == [key for key, _ in side_file_keys()]


def test_every_default_of_the_side_file_is_the_codes() -> None:
    listed = {key: default for key, default, _ in table_of(PAGE, "shoal.toml")}
    defaults = {**dict(side_file_keys()), **defaults_of_specifications()}

    assert {key: listed[key] for key, value in defaults.items() if value is not None} == {
        key: shown(value) for key, value in defaults.items() if value is not None
    }


def side_file_keys() -> Iterator[tuple[str, object]]:
    """Every key with its default, None where the default depends on something else."""
    tables: dict[str, type[BaseModel]] = {
        "": SideTables,
        "output": OutputTable,
        "batching": BatchingTable,
        "execution": ExecutionTable,
        "preprocessing": Preprocessing,
        "golden": GoldenTable,
    }
    for table, model in tables.items():
        for name, field in model.model_fields.items():
            if f"{table}{name}" not in tables:
                is_own = table in ("preprocessing", "golden")
                yield f"{table}.{name}".lstrip("."), field.default if is_own else None


def defaults_of_specifications() -> dict[str, object]:
    base, execution = BatchingSpec(), ExecutionSpec()
    return {
        "batching.max_queue_requests": base.max_queue_requests,
        "batching.max_queue_rows": base.max_queue_rows,
        "batching.oversize": base.oversize.value,
        "execution.step_timeout_s": execution.step_timeout_s,
        "execution.load_timeout_s": execution.load_timeout_s,
        "execution.max_restarts": execution.max_restarts,
        "execution.non_finite": execution.non_finite.value,
    }
