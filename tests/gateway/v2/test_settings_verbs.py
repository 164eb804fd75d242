"""Trace and log settings, as Triton 2.51 answers them."""

from typing import Any

import orjson
import pytest
import tritonclient.http as triton

from gateway.logs import LogLevels
from gateway.v2.logging_settings import LogSettings
from gateway.v2.surface_settings import SurfaceSettings
from gateway.v2.trace import TraceSettings
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.v2.serving import client_of, served

TRACE = "/v2/trace/setting"
OF_SIMPLE = "/v2/models/simple/trace/setting"
TRACE_DEFAULTS = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "",
    "trace_mode": "triton",
}
LOG_DEFAULTS = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}


async def ask(path: str, body: object, settings: SurfaceSettings | None = None) -> tuple[int, Any]:
    content = body if isinstance(body, str) else orjson.dumps(body)
    async with client_of(FakeEngine(), settings=settings) as client:
        reply = await client.post(path, content=content)
    return reply.status_code, reply.json()


@pytest.mark.parametrize(
    ("path", "expected"), [(TRACE, TRACE_DEFAULTS), (OF_SIMPLE, TRACE_DEFAULTS), ("/v2/logging", LOG_DEFAULTS)]
)
async def test_the_settings_can_be_read(path: str, expected: object) -> None:
    async with client_of(FakeEngine()) as client:
        reply = await client.get(path)

    assert (reply.status_code, reply.json()) == (200, expected)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, {}),
        ({"foo": 1, "trace_mode": "opentelemetry"}, {}),
        ({"trace_level": ["OFF"]}, {}),
        ({"trace_level": ["FOO", "MIN"]}, {}),
        ({"trace_level": None, "trace_rate": None}, {}),
        ({"trace_rate": "5"}, {"trace_rate": "5"}),
        ({"trace_rate": " +5x"}, {"trace_rate": "5"}),
        ({"trace_rate": "-1"}, {"trace_rate": "4294967295"}),
        ({"trace_count": "7", "log_frequency": "3"}, {"trace_count": "7", "log_frequency": "3"}),
        ({"trace_count": "2147483647"}, {"trace_count": "2147483647"}),
    ],
)
async def test_trace_settings_change(change: object, expected: dict[str, object]) -> None:
    assert await ask(TRACE, change) == (200, {**TRACE_DEFAULTS, **expected})


@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        ({"trace_level": ["TIMESTAMPS"]}, 400, "Attempting to set invalid trace setting :trace file name is not given"),
        ({"trace_level": ["TENSORS"], "trace_rate": "x"}, 400, "Unable to parse 'trace_rate', got: x"),
        ({"trace_level": ["OFF", "TENSORS"]}, 400, "Expect only one trace level 'OFF' is specified"),
        ({"trace_level": "OFF"}, 500, "attempt to access JSON non-array as array"),
        ({"trace_level": [1]}, 500, "attempt to access JSON non-string as string"),
        ({"trace_rate": 5}, 500, "attempt to access JSON non-string as string"),
        ({"trace_rate": ""}, 400, "Unable to parse 'trace_rate', got: "),
        (
            {"trace_rate": "4294967295"},
            400,
            "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: 4294967295",
        ),
        ({"trace_count": "-2"}, 400, "Unable to parse 'trace_count'. Expecting value >= -1, got:-2"),
        (
            {"trace_count": "2147483648"},
            400,
            "Unable to parse 'trace_count', value is out of range [ -1, 2147483647 ], got: 2147483648",
        ),
        ({"trace_file": "x"}, 501, "trace file location can not be updated through network protocol"),
        ({"trace_file": None}, 501, "trace file location can not be updated through network protocol"),
        ("", 500, "failed to parse the request JSON buffer: The document is empty. at 0"),
    ],
)
async def test_a_trace_setting_that_cannot_be_is_refused(change: object, status: int, text: str) -> None:
    settings = SurfaceSettings()

    answer = await ask(TRACE, change, settings)

    assert answer == (status, {"error": text})
    assert settings.trace.read() == TRACE_DEFAULTS


async def test_trace_settings_of_an_unknown_model_are_none() -> None:
    answer = await ask("/v2/models/nothing/trace/setting", "{")

    assert answer == (400, {"error": "Request for unknown model : nothing"})


def test_a_model_follows_the_settings_of_all_but_for_its_own() -> None:
    trace = TraceSettings()
    trace.update({"trace_rate": "11", "trace_count": "4"}, "m")

    trace.update({"trace_rate": "77", "trace_count": "9"})
    trace.update({"trace_rate": None}, "m")

    assert (trace.read("m")["trace_rate"], trace.read("m")["trace_count"]) == ("77", "4")
    assert trace.read("other")["trace_count"] == "9"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"log_info": False, "log_verbose_level": 2}, {"log_info": False, "log_verbose_level": 2}),
        ({"log_verbose_level": 2**32 + 1}, {"log_verbose_level": 1}),
        ({"log_format": "ISO8601"}, {"log_format": "ISO8601"}),
        ({"log_warnings": False, "log_file": None}, {}),
    ],
)
async def test_log_settings_change(change: object, expected: dict[str, object]) -> None:
    assert await ask("/v2/logging", change) == (200, {**LOG_DEFAULTS, **expected})


@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        ({"log_info": False, "log_file": ""}, 501, "log file location can not be updated through network protocol"),
        ({"log_info": False, "log_format": "bad"}, 503, "invalid argument for --log_format, got: bad"),
        ({"log_info": 1}, 500, "attempt to access JSON non-boolean as boolean"),
        ({"log_verbose_level": -1}, 500, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ({"log_format": 1}, 500, "attempt to access JSON non-string as string"),
    ],
)
async def test_a_log_setting_that_cannot_be_is_refused(change: object, status: int, text: str) -> None:
    settings = SurfaceSettings()

    answer = await ask("/v2/logging", change, settings)

    assert answer == (status, {"error": text})
    assert settings.logs.read() == LOG_DEFAULTS


def test_what_logs_is_told_of_changes_only() -> None:
    told: list[LogLevels] = []
    logs = LogSettings(apply=told.append)

    logs.update({"log_info": False})
    logs.update({"log_info": False})

    assert told == [LogLevels(info=False)]


@pytest.mark.parametrize("path", [TRACE, OF_SIMPLE, "/v2/logging"])
async def test_other_methods_are_not_allowed(path: str) -> None:
    async with client_of(FakeEngine()) as client:
        reply = await client.put(path)

    assert (reply.status_code, reply.json()) == (405, {"error": "Method Not Allowed"})


@pytest.mark.parametrize("path", ["/v2/trace", "/v2/logging/", "/v2/models/simple/versions/1/trace/setting"])
async def test_other_paths_are_not_found(path: str) -> None:
    async with client_of(FakeEngine()) as client:
        reply = await client.get(path)

    assert (reply.status_code, reply.json()) == (404, {"error": "Not Found"})


def test_the_unmodified_client_reads_and_changes_settings() -> None:
    with served(FakeEngine()) as port:
        client = triton.InferenceServerClient(f"127.0.0.1:{port}")
        client.update_trace_settings("simple", {"trace_rate": "5", "log_frequency": None})
        client.update_log_settings({"log_verbose_level": 1})
        trace, others = client.get_trace_settings("simple"), client.get_trace_settings()
        logs = client.get_log_settings()
        client.close()

    assert (trace["trace_rate"], others["trace_rate"], logs["log_verbose_level"]) == ("5", "1000", 1)
