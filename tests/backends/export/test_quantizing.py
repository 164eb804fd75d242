"""8-bit versions: written where they keep the answers."""

import json
from pathlib import Path

import onnx
import pytest

from backends.errors import ExportError
from backends.export.parity import MissedError, Wishes
from backends.export.quantizing import QuantizeRequest, quantize
from models.model_directory import read_model
from tests.backends.export.builders import files_below, save_colours, save_photos

pytestmark = pytest.mark.slow


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return save_photos(tmp_path / "photos")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_colours(tmp_path / "repository")


def zero_points(file: Path) -> dict[int, set[int]]:
    """The zero points of the quantisation, by element type (1: FLOAT, 2: UINT8, 3: INT8)."""
    found: dict[int, set[int]] = {}
    for tensor in onnx.load(file).graph.initializer:
        if tensor.name.endswith("zero_point"):
            found.setdefault(tensor.data_type, set()).update(onnx.numpy_helper.to_array(tensor).ravel().tolist())
    return found


def test_the_new_version_is_served_and_keeps_the_answers(model: Path, photos: Path) -> None:
    before = files_below(model)

    result = quantize(QuantizeRequest(model=model, photos=photos))

    assert files_below(model) - before == {"2/model.onnx", "2/parity.json"}
    assert [spec.version for spec in read_model(model).versions] == [2]
    assert [size.batch_rows for size in result.report.sizes] == [1, 8]
    assert all(size.overall.top1_agreement == 1 for size in result.report.sizes)
    assert 0 < result.report.sizes[0].overall.max_logit_difference < 0.1 * result.report.largest_logit
    assert result.bytes_after == (model / "2/model.onnx").stat().st_size


def test_the_report_says_what_calibrated_and_what_judged(model: Path, photos: Path) -> None:
    quantize(QuantizeRequest(model=model, photos=photos))

    report = json.loads((model / "2/parity.json").read_text())
    assert report["samples"] == (
        "6 held-out photos of 12 photos, mirrored too; calibrated on 6 calibration photos of 12 photos, mirrored too"
    )
    assert report["reference"] == "colours version 1, ONNX Runtime on the CPU"
    assert report["sizes"][1]["overall"]["rows"] == 16


def test_values_are_unsigned_and_weights_have_a_scale_for_each_channel(model: Path, photos: Path) -> None:
    quantize(QuantizeRequest(model=model, photos=photos))

    types = {tensor.data_type for tensor in onnx.load(model / "2/model.onnx").graph.initializer}
    assert {onnx.TensorProto.INT8, onnx.TensorProto.UINT8} <= types
    scales = [t for t in onnx.load(model / "2/model.onnx").graph.initializer if t.name.endswith("kernels_scale")]
    assert [list(scale.dims) for scale in scales] == [[64]]


def test_for_tensorrt_all_is_signed_and_around_zero(tmp_path: Path, photos: Path) -> None:
    config = """
    backend: "tensorrt"
    max_batch_size: 8
    instance_group [ { kind: KIND_GPU } ]
    """
    model = save_colours(tmp_path / "gpu", config=config)

    quantize(QuantizeRequest(model=model, photos=photos))

    assert zero_points(model / "2/model.onnx") == {onnx.TensorProto.INT8: {0}}


def test_a_variant_that_misses_a_bound_is_not_written(model: Path, photos: Path) -> None:
    before = files_below(model.parent)

    with pytest.raises(MissedError, match=r"colours/2: the int8 variant is not written: batch size 1, row 0: a score"):
        quantize(QuantizeRequest(model=model, photos=photos, wishes=Wishes(max_logit_difference=0)))

    assert files_below(model.parent) == before


def test_it_goes_into_another_repository_with_its_configuration(model: Path, photos: Path, tmp_path: Path) -> None:
    quantize(QuantizeRequest(model=model, photos=photos, repository=tmp_path / "other", new_version=7))

    expected = {"config.pbtxt", "shoal.toml", "7/model.onnx", "7/parity.json"}
    assert files_below(tmp_path / "other/colours") == expected


def test_an_old_version_can_be_quantised_again(model: Path, photos: Path) -> None:
    quantize(QuantizeRequest(model=model, photos=photos))

    with pytest.raises(ExportError, match=r"colours/2: model.onnx computes in 8 bits already; .*--version"):
        quantize(QuantizeRequest(model=model, photos=photos))
    quantize(QuantizeRequest(model=model, photos=photos, version=1, new_version=2, force=True))

    assert [spec.version for spec in read_model(model).versions] == [2]


def test_a_version_that_is_not_there_is_refused(model: Path, photos: Path) -> None:
    with pytest.raises(ExportError, match="colours: found no version 5, expected one of 1"):
        quantize(QuantizeRequest(model=model, photos=photos, version=5))


def test_too_few_photos_are_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="found 3 photos, expected at least 4"):
        quantize(QuantizeRequest(model=model, photos=save_photos(tmp_path / "few", 3)))


def test_a_model_without_preprocessing_is_refused(tmp_path: Path, photos: Path) -> None:
    model = save_colours(tmp_path / "plain", side="")

    with pytest.raises(ExportError, match=r"colours/1: expected \[preprocessing\] of dtype float32 in shoal.toml"):
        quantize(QuantizeRequest(model=model, photos=photos))


def test_a_model_of_another_backend_is_refused(tmp_path: Path, photos: Path) -> None:
    config = """
    backend: "fake"
    max_batch_size: 8
    input [ { name: "image" data_type: TYPE_FP32 dims: [ 3, 16, 16 ] } ]
    output [ { name: "scores" data_type: TYPE_FP32 dims: [ 3 ] } ]
    """
    model = save_colours(tmp_path / "fake", config=config)

    with pytest.raises(ExportError, match="found backend 'fake' with 1, expected an ONNX file"):
        quantize(QuantizeRequest(model=model, photos=photos))


def test_a_broken_configuration_is_told(tmp_path: Path, photos: Path) -> None:
    model = save_colours(tmp_path / "broken", config="max_batch_size: many")

    with pytest.raises(ExportError, match=r"colours/config.pbtxt:1"):
        quantize(QuantizeRequest(model=model, photos=photos))
