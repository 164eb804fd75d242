"""Loads and unloads. They leave Triton not ready, some for a moment, so other cases have servers of their own."""

from tritonclient.grpc import service_pb2 as pb

from tests.peers import grpc_cases
from tests.peers.cases.management import LOAD, UNLOAD, loading
from tests.peers.cases.rpc_infer import one
from tests.peers.cases.rpc_management import load, unload
from tests.peers.grpc_cases import Call
from tests.peers.http_cases import ONE, Cases, body, get, infer, post, tensor

CONFIG = (
    '{"name":"lent","backend":"python","max_batch_size":2,"input":[{"name":"x","data_type":"TYPE_FP32","dims":[-1]}],'
    '"output":[{"name":"y","data_type":"TYPE_FP32","dims":[-1]}],"instance_group":[{"kind":"KIND_CPU","count":1}]}'
)

CASES: Cases = {
    "load and unload": (
        post(LOAD),
        get("/v2/models/lent/ready"),
        get("/v2/models/lent"),
        infer("lent", body(ONE)),
        post(LOAD),
        post(UNLOAD, {"parameters": {"unload_dependents": True}}),
        infer("lent", body(ONE)),
        infer("lent", body(ONE), version="1"),
    ),
    "load with a configuration": (
        loading(config=CONFIG),
        get("/v2/models/lent/config"),
        infer("lent", body(tensor(shape=[3, 1], data=[1, 2, 3]))),
        post(UNLOAD),
    ),
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
    "load of an unknown model": post("/v2/repository/models/nothing/load"),
    "load of a hidden model": post("/v2/repository/models/.hidden/load"),
    "load with a file alone": loading(**{"file:1/x": "YQ=="}),
    "load with a broken configuration": loading(config="{"),
}
RPC_CASES: grpc_cases.Cases = {
    "gRPC load and unload": (load(), one(model="lent"), unload(), one(model="lent")),
    "gRPC load with a configuration": (
        load(config={"string_param": CONFIG}),
        Call("ModelConfig", pb.ModelConfigRequest(name="lent")),
        unload(),
    ),
    "gRPC load of an unknown model": load("nothing"),
    "gRPC load of no model": load(""),
    "gRPC load of a model elsewhere": load("../x"),
    "gRPC load with a file alone": load(**{"file:1/x": {"bytes_param": b"y"}}),
    "gRPC load with a broken configuration": load(config={"string_param": "{"}),
    "gRPC load with an empty configuration": load(config={"string_param": ""}),
}
