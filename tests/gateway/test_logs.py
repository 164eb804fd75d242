"""Log lines for people and for machines, and one a request."""

import logging
from collections.abc import Iterator
from functools import partial

import orjson
import pytest

from batching.clock import MonotonicClock
from gateway import logs
from gateway.request_log import LoggedService
from models.errors import ModelNotFoundError
from tests.gateway.serving import echo, images, mirror, rows, serving


def record(**fields: object) -> logging.LogRecord:
    made = logging.LogRecord("shoal.test", logging.WARNING, __file__, 1, "it is %s", ("late",), None)
    made.fields = fields
    return made


def test_a_line_for_people_ends_with_its_fields() -> None:
    line = logs.TextFormatter().format(record(model="m", rows=3))

    assert line.endswith(" WARNING it is late model=m rows=3")


def test_a_line_for_machines_is_one_json_object() -> None:
    line = orjson.loads(logs.JsonFormatter().format(record(model="m", where=object)))

    assert (line["level"], line["logger"], line["message"], line["model"]) == (
        "WARNING",
        "shoal.test",
        "it is late",
        "m",
    )
    assert line["time"].endswith("+00:00")
    assert line["where"] == "<class 'object'>"


def test_an_exception_is_inside_the_one_line() -> None:
    made = record()
    error = ZeroDivisionError("oh")
    made.exc_info = (type(error), error, None)

    line = logs.JsonFormatter().format(made)

    assert "\n" not in line
    assert "ZeroDivisionError: oh" in orjson.loads(line)["exception"]


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, put back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield root
    root.handlers = handlers
    root.setLevel(level)


@pytest.mark.parametrize(("verbose", "expected"), [(True, logging.DEBUG), (False, logging.INFO)])
def test_all_lines_of_the_process_go_through_one_handler(root: logging.Logger, verbose: bool, expected: int) -> None:
    logs.configure("json", verbose=verbose)

    assert [type(handler.formatter) for handler in root.handlers] == [logs.JsonFormatter]
    assert root.level == expected
    assert not logging.getLogger("httpx").isEnabledFor(logging.INFO)


@pytest.fixture
async def service():
    async with serving(echo(), mirror(), kind=partial(LoggedService, MonotonicClock())) as service:
        assert isinstance(service, LoggedService)
        yield service


def fields_of(caplog: pytest.LogCaptureFixture) -> dict[str, object]:
    (line,) = [entry for entry in caplog.records if entry.name == "shoal.request"]
    return line.fields  # type: ignore[attr-defined, no-any-return]


async def test_an_inference_is_one_line(service, caplog) -> None:
    with caplog.at_level(logging.INFO):
        await service.infer(rows(1, request_id="7"))

    fields = fields_of(caplog)
    assert fields.pop("total_ms") > 0
    assert fields == {
        "call": "infer",
        "model": "echo",
        "request_id": "7",
        "version": 1,
        "batch_rows": 1,
        "outcome": "ok",
    }


async def test_a_failed_inference_is_one_line_too(service, caplog) -> None:
    with caplog.at_level(logging.INFO), pytest.raises(ModelNotFoundError):
        await service.infer(rows(1, model="nobody"))

    assert fields_of(caplog)["outcome"] == "ModelNotFoundError"


async def test_a_classification_is_one_line_that_names_its_bad_images(service, caplog) -> None:
    with caplog.at_level(logging.INFO):
        await service.classify(images(b"1", b"x"))

    fields = fields_of(caplog)
    assert (fields["call"], fields["images"], fields["model"], fields["outcome"]) == (
        "classify",
        2,
        "mirror",
        "BrokenImageError",
    )


async def test_a_failed_classification_is_one_line_too(service, caplog) -> None:
    with caplog.at_level(logging.INFO), pytest.raises(ModelNotFoundError):
        await service.classify(images(b"1", model="nobody"))

    assert (fields_of(caplog)["model"], fields_of(caplog)["outcome"]) == ("nobody", "ModelNotFoundError")


@pytest.fixture
def configured() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers, root.level
    logs.configure("text", verbose=False)
    yield
    root.handlers, level = before
    root.setLevel(level)


def test_levels_can_be_changed_while_logging(configured: None, capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("shoal.test")

    logs.set_levels(logs.LogLevels(info=False, verbose=1, iso_times=True))
    for level in (logging.DEBUG, logging.INFO, logging.WARNING):
        log.log(level, "said")
    logs.set_levels(logs.LogLevels(warning=False, error=False))
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
        log.log(level, "said")

    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines] == ["DEBUG", "WARNING", "INFO", "CRITICAL"]
    assert ["T" in line.split()[0] for line in lines] == [True, True, False, False]
