"""Extracted archives with a handler, which hide what a test does not care about."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from backends.errors import ExecutionError, LoadError
from backends.ports import Executor, Placement
from backends.registry import create_executors
from backends.request_answers import are_split, split_answers
from models.handler_rows import Field, encode_row
from models.inference import Tensors
from models.spec import ModelSpec
from models.tensors import DataType
from tests.backends.builders import model, tensor

ON_CPU = Placement()


def archive(
    root: Path,
    code: str = "",
    *,
    handler: str = "handler.py",
    files: Mapping[str, str | bytes] | None = None,
    config: str | None = None,
    manifest: Mapping[str, str] | None = None,
    max_batch_rows: int = 8,
    **parameters: str,
) -> ModelSpec:
    """A model version that is an extracted archive, as the reader of archives leaves it."""
    directory = root / "archive"
    (directory / "MAR-INF").mkdir(parents=True, exist_ok=True)
    described = {"modelName": "m", "handler": handler, "modelVersion": "1.0", **(manifest or {})}
    if config is not None:
        (directory / "model-config.yaml").write_text(dedent(config))
        described["configFile"] = "model-config.yaml"
    if code:
        (directory / handler.partition(":")[0]).write_text(dedent(code))
    for name, content in (files or {}).items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(dedent(content).encode() if isinstance(content, str) else content)
    file = directory / "MAR-INF" / "MANIFEST.json"
    file.write_text(json.dumps({"runtime": "python", "model": described, "archiverVersion": "0.12.0"}))
    return model(
        backend="torchserve",
        file=file,
        inputs=[tensor("data", DataType.BYTES, (1,))],
        outputs=[tensor("response", DataType.BYTES, (1,))],
        max_batch_rows=max_batch_rows,
        handler=handler,
        **parameters,
    )


@contextmanager
def loaded(spec: ModelSpec, placement: Placement = ON_CPU) -> Iterator[Executor]:
    ((executor,),) = create_executors(spec, placement)
    executor.load()
    try:
        executor.warm_up([1])
        yield executor
    finally:
        executor.close()


def elements(*rows: bytes) -> Tensors:
    """The input of a batch."""
    column = np.empty((len(rows), 1), np.object_)
    column[:, 0] = rows
    return {"data": column}


def envelope(
    headers: Mapping[str, str] | None = None, *, request_id: str = "", **fields: bytes | tuple[bytes, str]
) -> bytes:
    """A row as a surface for TorchServe's clients sends it."""
    parts = {name: Field(*value) if isinstance(value, tuple) else Field(value) for name, value in fields.items()}
    return encode_row(parts, headers or {}, request_id=request_id)


def run(executor: Executor, *rows: bytes) -> list[bytes | ExecutionError]:
    """The answer to each row, or its error."""
    outputs = executor.run(elements(*rows), len(rows))
    if not are_split(outputs):
        return list(outputs["response"].ravel())
    answers = split_answers(outputs, [1] * len(rows))
    return [answer if isinstance(answer, ExecutionError) else answer["response"][0, 0] for answer in answers]


def answers_of(spec: ModelSpec, *rows: bytes) -> list[bytes | ExecutionError]:
    with loaded(spec) as executor:
        return run(executor, *rows)


def load_failure(spec: ModelSpec) -> str:
    with pytest.raises(LoadError) as caught, loaded(spec):
        pass
    return str(caught.value)


def run_failure(spec: ModelSpec, *rows: bytes, kind: type[ExecutionError] = ExecutionError) -> ExecutionError:
    with loaded(spec) as executor, pytest.raises(ExecutionError) as caught:
        run(executor, *rows)
    assert type(caught.value) is kind
    return caught.value
