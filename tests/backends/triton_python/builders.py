"""Models for Triton's python backend, and batches as the gateway makes them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import numpy as np

from backends.gather import gather
from backends.ports import Executor, Placement
from backends.registry import create_executors
from backends.request_answers import Answer, are_split, split_answers
from models.inference import Array, Parameter, Tensors
from models.request_rows import RequestInfo, attach
from models.spec import ModelSpec
from models.tensors import TensorSpec
from tests.backends.builders import model, tensor

HEAD = "import numpy as np\nimport triton_python_backend_utils as pb_utils\n"

ON_CPU = Placement()


def body(statements: str) -> str:
    """A model whose `execute` is these statements, with `requests` and `x`, the first input of each."""
    lines = "\n".join(f"        {line}" for line in dedent(statements).strip().splitlines())
    return f"""{HEAD}
class TritonPythonModel:
    def execute(self, requests):
        xs = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        def respond(y):
            return pb_utils.InferenceResponse([pb_utils.Tensor("y", y)])
{lines}
"""


IDENTITY = body("return [respond(x) for x in xs]")


def triton_model(
    root: Path,
    code: str,
    *,
    inputs: Sequence[TensorSpec] = (tensor("x"),),
    outputs: Sequence[TensorSpec] = (tensor("y"),),
    max_batch_rows: int = 8,
    config: dict[str, object] | None = None,
    **parameters: str,
) -> ModelSpec:
    file = root / "m" / "1" / "model.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(dedent(code))
    spec = model(
        backend="python", file=file, inputs=inputs, outputs=outputs, max_batch_rows=max_batch_rows, **parameters
    )
    return replace(spec, wants_requests=True, config=config or {})


@contextmanager
def loaded(spec: ModelSpec, placement: Placement = ON_CPU) -> Iterator[Executor]:
    """The only lane of the only instance, in this process."""
    ((executor,),) = create_executors(spec, placement)
    try:
        executor.load()
        executor.warm_up((1,))
        yield executor
    finally:
        executor.close()


def request(*rows: int, id: str = "", outputs: Sequence[str] = (), **parameters: Parameter) -> Tensors:  # noqa: A002
    """The payload of a request; each number makes one row."""
    info = RequestInfo(request_id=id, parameters=parameters, outputs=tuple(outputs), timeout_us=len(rows) * 1_000)
    return attach({"x": np.array([[row, row] for row in rows], np.int64)}, len(rows), info)


def answers(executor: Executor, *payloads: Tensors, padding: int = 0, name: str = "x") -> list[Answer]:
    """What the requests of one batch are answered."""
    rows = [len(payload[name]) for payload in payloads]
    executed_rows = sum(rows) + padding
    outputs = executor.run(gather(payloads, rows, executed_rows), executed_rows)
    if are_split(outputs):
        return split_answers(outputs, rows)
    ends = np.cumsum(rows)
    return [
        {name: array[end - count : end] for name, array in outputs.items()}
        for end, count in zip(ends, rows, strict=True)
    ]


def told(answer: Answer) -> object:
    """The rows of output `y`, or the error as text."""
    return f"{type(answer).__name__}: {answer}" if isinstance(answer, Exception) else answer["y"].tolist()


def texts(array: Array) -> list[str]:
    return [element.decode() for element in array.ravel().tolist()]
