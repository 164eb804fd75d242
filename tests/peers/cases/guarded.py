"""Calls that need a header, and headers that models see: servers with flags of their own."""

from tritonclient.grpc import service_pb2 as pb

from tests.peers import grpc_cases
from tests.peers.http_cases import Cases, Request, body, get, infer, post, tensor

FLAGS = (
    "--http-restricted-api=model-config,logging:guard=Open", "--http-restricted-api=model-repository:other=x=y",
    "--grpc-restricted-protocol=model-config,logging:guard=Open",
    "--http-header-forward-pattern=(X-.*|my-colour|priority|triton_.*)",
    "--grpc-header-forward-pattern=(x-.*|my-colour)",
)  # fmt: skip
CONFIG, SHOWS = "/v2/models/shows/config", body(tensor(shape=[1], data=[0]))


def told(**headers: str) -> Request:
    """What the model is told of headers."""
    return infer("shows", SHOWS, {name.replace("_", "-"): value for name, value in headers.items()})


CASES: Cases = {
    "without the header": get(CONFIG),
    "with the header": get(CONFIG, guard="Open"),
    "with the header in capitals": get(CONFIG, GUARD="Open"),
    "with another value": get(CONFIG, guard="open"),
    "with an empty value": get(CONFIG, guard=""),
    "the header of another group": get(CONFIG, other="x=y"),
    "a wrong method without the header": post(CONFIG),
    "an unknown model without the header": get("/v2/models/nothing/config"),
    "settings without the header": post("/v2/logging", "{"),
    "settings with the header": get("/v2/logging", guard="Open"),
    "the index without the header": post("/v2/repository/index"),
    "the index with the header": post("/v2/repository/index", b"", {"other": "x=y"}),
    "a load without the header": post("/v2/repository/models/shows/load"),
    "a load with the header, where models are fixed": post("/v2/repository/models/shows/load", b"", {"other": "x=y"}),
    "an unload with the header, where models are fixed": post(
        "/v2/repository/models/shows/unload", b"", {"other": "x=y"}
    ),
    "what is not restricted": get("/v2/models/shows"),
    "a header for the model": told(X_Colour="red"),
    "a header with other capitals": told(x_cOLOUR="red"),
    "a header that matches in part": told(Not_X_Colour="red", My_Colours="x"),
    "a header without a value": told(X_Empty=""),
    "two headers": told(X_Colour="red", My_Colour="blue"),
    "a header twice": Request(
        "POST", "/v2/models/shows/infer", infer("", SHOWS).body, (("X-Colour", "red"), ("X-Colour", "blue"))
    ),
    "a header like a parameter": infer("shows", {**SHOWS, "parameters": {"x-colour": "mine"}}, {"x-colour": "red"}),
    "a header with a reserved name": told(priority="1"),
    "a header to generate": post("/v2/models/shows/generate", {"x": [0]}, {"X-Colour": "red"}),
}  # fmt: skip


def config(**metadata: str) -> grpc_cases.Call:
    """A restricted call."""
    return grpc_cases.Call("ModelConfig", pb.ModelConfigRequest(name="shows"), tuple(metadata.items()))


def told_by(**metadata: str) -> grpc_cases.Call:
    """What the model is told of metadata."""
    message = grpc_cases.request("shows", grpc_cases.tensor(shape=(1,)), raw=(bytes(4),))
    return grpc_cases.Call("ModelInfer", message, tuple((name.replace("_", "-"), v) for name, v in metadata.items()))


RPC_CASES: grpc_cases.Cases = {
    "gRPC without the metadata": config(),
    "gRPC with the metadata": config(**{"triton-grpc-protocol-guard": "Open"}),
    "gRPC with another value": config(**{"triton-grpc-protocol-guard": "open"}),
    "gRPC without the prefix": config(guard="Open"),
    "gRPC settings without the metadata": grpc_cases.Call("LogSettings", pb.LogSettingsRequest()),
    "gRPC metadata for the model": told_by(x_colour="red"),
    "gRPC metadata that matches in part": told_by(not_x_colour="red", my_colours="x"),
    "gRPC metadata with two names": told_by(x_colour="red", my_colour="blue"),
}
