"""The repository, statistics, settings and shared memory. Each case leaves the servers as it found them."""

from tests.peers.http_cases import ONE, Cases, Request, body, get, infer, post, tensor

LOAD, UNLOAD, INDEX = "/v2/repository/models/lent/load", "/v2/repository/models/lent/unload", "/v2/repository/index"
TRACE, LOGGING = "/v2/trace/setting", "/v2/logging"
REGION = "/v2/systemsharedmemory/region/nothing"
CUDA = "/v2/cudasharedmemory"


def loading(**parameters: object) -> Request:
    """A load with parameters, which is refused."""
    return post(LOAD, {"parameters": parameters})


INDEX_BODIES = (
    "",
    "{}",
    " ",
    "[]",
    "3",
    "{",
    '{"ready":1}',
    '{"ready":"x"}',
    '{"ready":null}',
    '{"ready":true}',
    '{"a":1}',
)
TRACES: tuple[object, ...] = (
    {}, "", "{", "[]", {"foo": 1}, {"trace_level": "OFF"}, {"trace_level": []}, {"trace_level": ["OFF"]},
    {"trace_level": ["MIN"]}, {"trace_level": ["OFF", "TIMESTAMPS"]}, {"trace_rate": 1}, {"trace_rate": "x"},
    {"trace_rate": "-1"}, {"trace_count": "-2"}, {"trace_count": "x"}, {"log_frequency": "-1"}, {"log_frequency": 1},
    {"trace_file": "x"}, {"trace_mode": "triton"},
)  # fmt: skip
LOGS: tuple[object, ...] = (
    {}, "[]", "{", {"foo": 1}, {"log_info": "x"}, {"log_info": 1}, {"log_warning": None}, {"log_error": "x"},
    {"log_verbose_level": "1"}, {"log_verbose_level": -1}, {"log_verbose_level": True}, {"log_file": "x"},
    {"log_file": 1}, {"log_format": "x"}, {"log_format": 1}, {"log_format": "ISO8601"}, {"log_format": "default"},
)  # fmt: skip

CASES: Cases = {
    **{f"index {content!r}": post(INDEX, content) for content in INDEX_BODIES},
    "index of a repository": post("/v2/repository/r/index"),
    "load from a repository": post("/v2/repository/r/models/lent/load"),
    "load with JSON that is none": post(LOAD, "{"),
    "load with an unknown parameter": loading(what="y"),
    "load with a configuration that is a number": loading(config=1),
    "load with parameters that are a list": post(LOAD, {"parameters": []}),
    "unload of an unknown model": post("/v2/repository/models/nothing/unload"),
    "unload of an unloaded model": post(UNLOAD),
    "unload from a repository": post("/v2/repository/r/models/lent/unload"),
    "unload with JSON that is none": post(UNLOAD, "{"),
    "unload with dependents of one": post(UNLOAD, {"parameters": {"unload_dependents": 1}}),
    "unload with an unknown parameter": post(UNLOAD, {"parameters": {"what": 1}}),
    "statistics": (
        get("/v2/models/counted/stats"),
        infer("counted", body(ONE)),
        infer("counted", body(tensor(shape=[2, 2], data=[1, 2, 3, 4]))),
        infer("counted", body(tensor("INT32", data=[1, 2]))),
        get("/v2/models/counted/stats"),
        get("/v2/models/counted/versions/1/stats"),
    ),
    "trace settings": (*(post(TRACE, content) for content in TRACES), get(TRACE)),
    "trace settings that change": (
        post(TRACE, {"trace_rate": "11", "trace_count": "7", "log_frequency": "3"}),
        post("/v2/models/single/trace/setting", {"trace_rate": "5"}),
        get(TRACE),
        get("/v2/models/single/trace/setting"),
        post("/v2/models/single/trace/setting", {"trace_rate": None}),
        post(TRACE, {"trace_rate": None, "trace_count": None, "log_frequency": None, "trace_level": None}),
    ),
    "trace settings of an unknown model": post("/v2/models/nothing/trace/setting", {"trace_rate": "3"}),
    "log settings": (*(post(LOGGING, content) for content in LOGS), get(LOGGING)),
    "log settings that change": (
        post(LOGGING, {"log_warning": False, "log_verbose_level": 1}),
        get(LOGGING),
        post(LOGGING, {"log_warning": True, "log_verbose_level": 0}),
    ),
    "the status of regions": get("/v2/systemsharedmemory/status"),
    "the status of an unknown region": get(f"{REGION}/status"),
    "a region of nothing": post(f"{REGION}/register", {"key": "/nothing_at_all", "byte_size": 8}),
    "a region without a key": post(f"{REGION}/register", {"byte_size": 8}),
    "a region without a size": post(f"{REGION}/register", {"key": "/nothing_at_all"}),
    "a region with a number as its key": post(f"{REGION}/register", {"key": 1, "byte_size": 8}),
    "a region with a negative size": post(f"{REGION}/register", {"key": "/nothing_at_all", "byte_size": -8}),
    "a region without JSON": post(f"{REGION}/register", "{"),
    "a region without a body": post(f"{REGION}/register"),
    "an unknown region leaves": post(f"{REGION}/unregister"),
    "all regions leave": post("/v2/systemsharedmemory/unregister"),
    "the status of GPU regions": get(f"{CUDA}/status"),
    "the status of an unknown GPU region": get(f"{CUDA}/region/nothing/status"),
    "an unknown GPU region leaves": post(f"{CUDA}/region/nothing/unregister"),
    "all GPU regions leave": post(f"{CUDA}/unregister"),
    "a GPU region": post(
        f"{CUDA}/region/r/register", {"raw_handle": {"b64": "A" * 85 + "=" * 3}, "device_id": 0, "byte_size": 8}
    ),
    "a GPU region without a handle": post(f"{CUDA}/region/r/register", {"device_id": 0, "byte_size": 8}),
}  # fmt: skip
