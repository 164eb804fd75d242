"""The models that both servers have: Python code, the same files for both."""

from pathlib import Path
from typing import NamedTuple

ECHO = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([self.answer(x) for x in request.inputs()]) for request in requests]

    def answer(self, x):
        return pb_utils.Tensor("y" + x.name()[1:], x.as_numpy())
"""
# The interface has no numpy array for this type; DLPack knows it.
ECHO_BF16 = ECHO.replace(
    'pb_utils.Tensor("y" + x.name()[1:], x.as_numpy())', 'pb_utils.Tensor.from_dlpack("y", x.to_dlpack())'
)
SLOW = ECHO.replace("import triton", "import time\nimport triton").replace(
    "def answer(self, x):", "def answer(self, x):\n        time.sleep(0.2)"
)
FAILS = """
class TritonPythonModel:
    def execute(self, requests):
        raise ValueError("went wrong")
"""
REFUSES = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.refusal(request) for request in requests]

    def refusal(self, request):
        number = int(pb_utils.get_input_tensor_by_name(request, "x").as_numpy().flat[0])
        codes = (
            "UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS",
            "CANCELLED",
        )
        code = getattr(pb_utils.TritonError, codes[number])
        return pb_utils.InferenceResponse(error=pb_utils.TritonError("not " + codes[number], code))
"""
SHOWS = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.shown(request) for request in requests]

    def shown(self, request):
        shown = {
            "id": request.request_id(), "sequence": request.correlation_id(), "flags": request.flags(),
            "timeout": request.timeout(), "parameters": json.loads(request.parameters()),
            "outputs": sorted(request.requested_output_names()),
        }
        text = np.array([json.dumps(shown, sort_keys=True)], dtype=object)
        return pb_utils.InferenceResponse([pb_utils.Tensor("y", text)])
"""
ODD = ECHO.replace("x.as_numpy())", "x.as_numpy()[:1])")
HALF = ECHO.replace("for x in request.inputs()]", 'for x in request.inputs() if x.name() == "x0"]')
TYPES = (
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "BF16", "FP32", "FP64",
    "STRING",
)  # fmt: skip
LABELS = "cat\ndog\n\ncow\n"


class Tensor(NamedTuple):
    """A declared input or output."""

    name: str
    type: str = "FP32"
    dims: str = "-1"
    more: str = ""

    def __str__(self) -> str:
        return f'{{ name: "{self.name}" data_type: TYPE_{self.type} dims: [ {self.dims} ] {self.more} }}'


class Model(NamedTuple):
    """A directory of the repository."""

    inputs: tuple[Tensor, ...] = (Tensor("x"),)
    outputs: tuple[Tensor, ...] = (Tensor("y"),)
    code: str = ECHO
    max_batch_size: int = 8
    more: str = ""
    versions: tuple[int, ...] = (1,)

    def config(self, name: str) -> str:
        """Its config.pbtxt."""
        inputs, outputs = (", ".join(map(str, tensors)) for tensors in (self.inputs, self.outputs))
        return (
            f'name: "{name}"\nbackend: "python"\nmax_batch_size: {self.max_batch_size}\n'
            f"input [ {inputs} ]\noutput [ {outputs} ]\n"
            f"instance_group [ {{ kind: KIND_CPU count: 1 }} ]\n{self.more}\n"
        )


QUEUE = "dynamic_batching { default_queue_policy { timeout_action: REJECT %s } }"
PAIR = (Tensor("x0"), Tensor("x1", "INT32"))
PAIR_OUT = (Tensor("y0"), Tensor("y1", "INT32"))
OPTIONAL = (Tensor("x0", more="optional: true"), Tensor("x1", "INT32", more="optional: true"))
MODELS = {
    **{
        f"echo_{kind.lower()}": Model((Tensor("x", kind),), (Tensor("y", kind),), ECHO_BF16 if kind == "BF16" else ECHO)
        for kind in TYPES
    },
    "fixed": Model((Tensor("x", dims="4"),), (Tensor("y", dims="4"),)),
    "single": Model(max_batch_size=0),
    "grid": Model((Tensor("x", dims="-1, 2"),), (Tensor("y", dims="-1, 2"),), max_batch_size=0),
    "texts": Model((Tensor("x", "STRING", "1"),), (Tensor("y", "STRING", "1"),)),
    "pair": Model(PAIR, PAIR_OUT),
    "optional": Model(OPTIONAL, PAIR_OUT, max_batch_size=0),
    "optional_rows": Model(OPTIONAL, PAIR_OUT),
    "partly": Model((PAIR[0]._replace(more="optional: true"), PAIR[1]), PAIR_OUT),
    "odd": Model(code=ODD),
    "half": Model(PAIR, PAIR_OUT, HALF),
    "labelled": Model(outputs=(Tensor("y", dims="4", more='label_filename: "labels.txt"'),)),
    "versions": Model(versions=(1, 2), more="version_policy { all {} }"),
    "slow": Model(code=SLOW, more="dynamic_batching { }"),
    "crowded": Model(code=SLOW, max_batch_size=1, more=QUEUE % "max_queue_size: 1"),
    "hurried": Model(code=SLOW, max_batch_size=1, more=QUEUE % "default_timeout_microseconds: 50000"),
    "fails": Model(code=FAILS),
    "refuses": Model((Tensor("x", "INT32"),), code=REFUSES),
    "shows": Model(outputs=(Tensor("y", "STRING", "1"),), code=SHOWS, max_batch_size=0),
    "ranks": Model(more="dynamic_batching { priority_levels: 3 default_priority_level: 2 }"),
    "counted": Model(),
    "counted_grpc": Model(),
    "spare": Model(),
    "lent": Model(),
    "broken": Model(code="no Python"),
}
UNLOADED = {"spare", "lent", "broken"}
"""These are not served from the start: `lent` is loaded and unloaded again."""


def write(root: Path, *names: str) -> Path:
    """Write these models below a directory, or all of them."""
    for name in names or MODELS:
        model = MODELS[name]
        for version in model.versions:
            (root / name / str(version)).mkdir(parents=True)
            (root / name / str(version) / "model.py").write_text(model.code)
        (root / name / "config.pbtxt").write_text(model.config(name))
    if names:
        return root
    (root / "labelled/labels.txt").write_text(LABELS)
    return root
