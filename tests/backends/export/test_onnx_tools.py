"""ONNX files in half precision; 8 bits are in test_quantizing."""

from pathlib import Path

import onnx
import pytest

from backends.errors import ExportError
from backends.export.onnx_tools import is_quantised, write_half
from tests.backends.export.builders import save_colours


def test_half_precision_is_valid_onnx_with_single_precision_outside(tmp_path: Path) -> None:
    target = tmp_path / "half.onnx"

    write_half(save_colours(tmp_path) / "1" / "model.onnx", target)

    onnx.checker.check_model(str(target), full_check=True)
    graph = onnx.load(target).graph
    assert {tensor.data_type for tensor in graph.initializer} == {onnx.TensorProto.FLOAT16}
    ends = [tensor.type.tensor_type.elem_type for tensor in (*graph.input, *graph.output)]
    assert ends == [onnx.TensorProto.FLOAT] * 2
    assert not is_quantised(target)


def test_a_file_that_is_no_network_is_a_sentence(tmp_path: Path) -> None:
    source = tmp_path / "model.onnx"
    source.write_bytes(b"no network")

    with pytest.raises(ExportError, match="the network cannot be converted to fp16: "):
        write_half(source, tmp_path / "half.onnx")
