"""Paths, methods, versions, and what a server says of itself."""

from tests.peers.http_cases import ONE, Cases, Request, body, get, in_bytes, infer, post

PATHS = (
    "/v2", "/v2/", "/", "/v2/models", "/v2/models/", "/v2/models/single/", "/v2/models/single/nothing", "/v1/models",
    "/v2/health", "/v2/health/live", "/v2/health/ready", "/v2/health/live/", "/v2/health/else", "/V2", "/v2?a=b",
    "/v2/models/single?x", "/v2/models/single/ready", "/v2/models/versions/ready", "/v2/models/nothing/config",
    "/v2/models/nothing", "/v2/models/a%20b", "/v2/models/a+b", "/v2/models/spare", "/v2/models/broken",
    "/v2/models/versions", "/v2/models/versions/versions/1", "/v2/models/versions/versions/2",
    "/v2/models/versions/versions/3", "/v2/models/versions/versions/1/ready", "/v2/models/versions/versions/3/ready",
    "/v2/models/versions/versions/01", "/v2/models/versions/versions/a", "/v2/models/versions/versions/-1",
    "/v2/models/versions/versions/", "/v2/models/versions/versions", "/v2/models/versions/versions/1/nothing",
    "/v2/models/versions/versions/0", "/v2/models/versions/versions/99999999999999999999",
    "/v2/models/versions/versions/9/config", "/v2/models/stats/ready", "/v2/models/stats/",
    "/v2/models/nothing/stats", "/v2/models/versions/versions/9/stats", "/v2/models/nothing/versions/1/stats",
    "/v2/models/spare/stats", "/v2/models/spare/config", "/v2/models/spare/ready", "/v2/models/broken/ready",
    "/v2/models/echo_bool", "/v2/models/echo_string", "/v2/models/echo_bf16", "/v2/models/grid", "/v2/models/pair",
    "/v2/models/optional", "/v2/models/labelled", "/v2/models/texts", "/v2/models/ranks", "/v2/models/slow",
    "/v2/models/pair/config", "/v2/models/single/config", "/v2/models/optional/config", "/v2/models/labelled/config",
    "/v2/models/versions/config", "/v2/models/versions/versions/1/config", "/v2/models/slow/config",
    "/v2/models/ranks/config", "/v2/models/nothing/ready", "/v2/models/s%69ngle",
    "/v2/models/single/trace/setting", "/v2/models/nothing/trace/setting", "/v2/trace", "/v2/trace/setting",
    "/v2/models/single/versions/1/trace/setting", "/v2/logging", "/v2/logging/",
    "/v2/systemsharedmemory", "/v2/systemsharedmemory/status", "/v2/systemsharedmemory/region/x/status",
    "/v2/cudasharedmemory/status", "/v2/cudasharedmemory/region/x/status", "/v2/repository", "/metrics",
)  # fmt: skip
WRONG_METHODS = (
    ("HEAD", "/v2"), ("POST", "/v2"), ("PUT", "/v2"), ("OPTIONS", "/v2"), ("PATCH", "/v2"),
    ("DELETE", "/v2/models/single"),
    ("POST", "/v2/health/ready"), ("POST", "/v2/models/single"), ("POST", "/v2/models/single/ready"),
    ("POST", "/v2/models/single/config"), ("POST", "/v2/models/stats"), ("POST", "/v2/models/single/stats"),
    ("GET", "/v2/models/single/infer"), ("PUT", "/v2/models/single/infer"), ("GET", "/v2/models/nothing/infer"),
    ("GET", "/v2/models/single/generate"), ("GET", "/v2/models/single/generate_stream"),
    ("GET", "/v2/repository/index"), ("GET", "/v2/repository/models/single/load"),
    ("DELETE", "/v2/repository/models/single/unload"), ("PUT", "/v2/logging"), ("PUT", "/v2/trace/setting"),
    ("POST", "/v2/systemsharedmemory/status"), ("GET", "/v2/systemsharedmemory/unregister"),
    ("GET", "/v2/systemsharedmemory/region/x/register"), ("POST", "/v2/cudasharedmemory/region/x/status"),
    ("POST", "/v2/nothing"), ("POST", "/v2/repository"), ("POST", "/v2/repository/models/single/nothing"),
    ("POST", "/v2/models/single/versions/x/infer"), ("POST", "/v2/models//infer"),
)  # fmt: skip

HTTP_1_0 = b"POST /v2/models/echo_fp32/infer HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b"
JSON = in_bytes(body(ONE))
CASES: Cases = {
    **{f"GET {path}": get(path) for path in PATHS},
    **{f"{method} {path}": Request(method, path) for method, path in WRONG_METHODS},
    "GET with a body": Request("GET", "/v2", b"xxx"),
    "infer of an unknown model": infer("nothing", body(ONE)),
    "infer of an unknown model without JSON": infer("nothing", "{"),
    "infer of an unloaded model": infer("spare", body(ONE)),
    "infer of version 1": infer("versions", body(ONE), version="1"),
    "infer of version 2": infer("versions", body(ONE), version="2"),
    "infer of the newest version": infer("versions", body(ONE)),
    "infer of an unknown version": infer("versions", body(ONE), version="3"),
    "infer of a version with a zero before it": infer("versions", body(ONE), version="01"),
    "infer with a query": post("/v2/models/single/infer?a=b", body(ONE)),
    "infer with the wrong content type": infer("echo_fp32", body(ONE), {"Content-Type": "text/plain"}),
    "infer with an unknown accepted type": infer("echo_fp32", body(ONE), {"Accept": "image/png"}),
    "a body in chunks": Request("POST", "/v2/models/echo_fp32/infer", JSON, (), 7),
    "a body in chunks of one byte": Request("POST", "/v2/models/echo_fp32/infer", JSON, (), 1),
    "HTTP 1.0": Request("POST", "", sent=HTTP_1_0 % (len(JSON), JSON)),
    "no body": post("/v2/models/echo_fp32/infer"),
}  # fmt: skip
