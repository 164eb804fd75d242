"""What the real Triton 2.51 answers otherwise, on purpose: the one place that excuses a difference.

Each entry says where docs/compatibility.md tells it, and which cases it explains. A case that is named here and does
not differ any more fails, as does one that differs and is not named.
"""

from typing import NamedTuple

HTTP_TABLE, GRPC_TABLE = "What differs, on purpose", "Over gRPC"


class Known(NamedTuple):
    """A difference.

    Attributes:
        told: The first cell of its row in one of the page's tables, or words of the page's text.
        cases: Ids of the cases that show it: the area and the name.
    """

    told: str
    cases: frozenset[str]


def _of(told: str, area: str, *names: str) -> Known:
    return Known(told, frozenset(f"{area}: {name}" for name in names))


_UNKNOWN_READY = "/ready of an unknown model"
_RAISED = "but with files named without their directories"
_LOAD_TEXT = "A configuration in a load that cannot be read is 400 with the reason"
_NAME = "Shoal tells its own name and version"
_PATTERN = "in 2.51 a part suffices"
_VERSIONS = [(name, version) for name in ("nothing", "spare", "broken", "") for version in ("", "1")]
KNOWN = (
    _of(_NAME, "routing", "GET /v2", "GET /v2?a=b", "GET with a body"),
    _of(_NAME, "binary_bodies", "accepting gzip for metadata"),
    _of(_NAME, "rpc_management", "ServerMetadata"),
    _of("Paths outside of `/v2` are its own", "routing", "GET /", "GET /metrics"),
    _of("a percent-encoded name of a model", "routing", "GET /v2/models/a%20b", "GET /v2/models/s%69ngle"),
    _of(
        _UNKNOWN_READY, "routing",
        *(f"GET /v2/models/{name}/ready" for name in ("nothing", "spare", "broken", "stats", "versions/versions/3")),
    ),
    _of(
        "ModelReady of an unknown model", "rpc_management", "ModelReady of 'versions' '3'",
        *(f"ModelReady of {name!r} {version!r}" for name, version in _VERSIONS),
    ),
    _of("a shape of 2^63 elements or bytes", "json_bodies", "a dimension whose product overflows"),
    _of("JSON nested too deeply", "json_bodies", "JSON of 2000 levels"),
    _of("the same member twice in a JSON object", "json_bodies", "a member twice"),
    _of("an id or a parameter that is not UTF-8", "json_bodies", "an id that is not UTF-8"),
    _of(_RAISED, "json_bodies", "the model raises", "the model raises, with an id"),
    _of(_RAISED, "generate", "generate: a model that raises", "generate_stream: a model that raises"),
    _of(_RAISED, "rpc_infer", "the model raises", "a stream of a model that raises"),
    _of(
        "A request without a required input is 400 also where others are optional", "json_bodies",
        "a required input missing, where another is optional",
    ),
    _of(
        "one with other shapes, element types or numbers of rows than declared", "json_bodies",
        "the model answers other rows",
    ),
    _of("a body in zstd", "binary_bodies", "zstd"),
    _of(
        "a compressed body that is damaged or incomplete", "binary_bodies", "gzip that is none", "gzip without its end"
    ),
    _of("NaN is the last of classes", "outputs", "classes with NaN among them"),
    _of("the same output asked for twice", "outputs", "the same output twice"),
    _of("the same output twice", "rpc_infer", "the same output twice"),
    _of("2^32 and more classes", "rpc_infer", "2^40 classes"),
    _of(
        "an input that is there twice in a body of generate", "generate", "generate: an input twice",
        "generate_stream: an input twice",
    ),
    _of("a second region of the same shared memory", "regions", "a second name"),
    _of("a stream with the metadata triton_grpc_error: true", "rpc_infer", "a stream of gRPC errors"),
    _of("The text for two negative dimensions names another size", "rpc_infer", "two negative dimensions"),
    _of("Why a model cannot be loaded is told in Shoal's words", "loads", "a load that fails, and what is seen of it"),
    _of("a load with file: parameters", "loads", "load with a file alone", "gRPC load with a file alone"),
    _of(
        _LOAD_TEXT, "loads", "load with a broken configuration", "gRPC load with a broken configuration"
    ),
    _of("a load with an empty configuration", "loads", "gRPC load with an empty configuration"),
    _of(
        "Names of forwarded headers reach the model in lower case", "guarded", "a header for the model",
        "a header with other capitals", "two headers", "a header twice", "a header without a value",
    ),
    _of(_PATTERN, "guarded", "a header that matches in part", "gRPC metadata that matches in part"),
)  # fmt: skip

NOT_COMPARED = {
    "a body above --http-max-input-size": "2.51 knows no such limit",
    "more than 2,000,000 values in JSON beside the numbers and strings of data, or NaN among them": "large",
    "classes of more than 1,000,000 elements": "large",
    "shared memory that a client registers or unregisters": "both servers are started so that it is allowed",
    "more than 1024 regions": "many",
    "a version named by a label that the model has": "labels are in a file that 2.51 does not know",
    "a shape of no rows with the data of one": "2.51 answers with memory that nobody has written",
    "classes of an output without elements": "2.51 dies",
    "classes of an output of type BYTES": "2.51 dies",
    "shared memory of Triton's own workers": "it is its own",
    "shared memory that its client has made shorter": "2.51 dies",
    "a region that begins at an offset": "2.51 writes outside of it",
    "a place in a region whose end is beyond 64 bits": "2.51 reads outside of it",
    "a registration by a page in a browser": "2.51 has no such check",
    "a load from a page of another site": "2.51 has no such check",
    "a load without the control token": "2.51 has none",
    "a message above --grpc-max-input-size, 256 MiB by default": "large",
    "a message of more than 1 MiB with more than 2,000,000 fields, strings or 32 bytes of other typed contents": (
        "large"
    ),
    "a message of more than 1 MiB that is no infer request": "large",
}
"""Rows of the page's tables that no case shows, and why."""


def excuse_of(case: str) -> str | None:
    """Where the page tells that this case differs, or None."""
    return next((known.told for known in KNOWN if case in known.cases), None)
