"""Loads that fail. They leave Triton not ready, so these servers are asked nothing else."""

from tests.peers import grpc_cases
from tests.peers.cases.management import loading
from tests.peers.cases.rpc_management import load
from tests.peers.http_cases import ONE, Cases, body, get, infer, post

CASES: Cases = {
    "a load that fails, and what is seen of it": (
        post("/v2/repository/models/broken/load"),
        post("/v2/repository/index"),
        get("/v2/models/broken"),
        infer("broken", body(ONE)),
        infer("broken", body(ONE), version="1"),
        get("/v2/health/ready"),
        post("/v2/repository/models/broken/unload"),
        get("/v2/health/ready"),
    ),
    "load with a file alone": loading(**{"file:1/x": "YQ=="}),
    "load with a broken configuration": loading(config="{"),
}
RPC_CASES: grpc_cases.Cases = {
    "gRPC load with a file alone": load(**{"file:1/x": {"bytes_param": b"y"}}),
    "gRPC load with a broken configuration": load(config={"string_param": "{"}),
    "gRPC load with an empty configuration": load(config={"string_param": ""}),
}
