"""The embedded model is an ordinary repository, complete or absent."""

import tomllib
from concurrent.futures import ThreadPoolExecutor

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from models.errors import RepositoryError
from models.preprocessing import Preprocessing
from models.zoo.embedded import ensure_cached, write_repository

FILES = ["1/model.onnx", "config.pbtxt", "labels.txt", "shoal.toml"]


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory):
    return write_repository(tmp_path_factory.mktemp("repository")) / "efficientnet-lite0"


def files_below(directory):
    return sorted(str(file.relative_to(directory)) for file in directory.rglob("*") if file.is_file())


def test_the_repository_has_tritons_layout_and_nothing_else(model_directory):
    assert files_below(model_directory) == FILES
    assert [entry.name for entry in model_directory.parent.iterdir()] == ["efficientnet-lite0"]


def test_the_configuration_fits_tritons_schema(model_directory):
    config = text_format.Parse((model_directory / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())

    assert (config.name, config.max_batch_size) == ("efficientnet-lite0", 4)
    assert [(tensor.name, *tensor.dims) for tensor in config.input] == [("image", 3, 224, 224)]
    assert [(tensor.name, *tensor.dims) for tensor in config.output] == [("logits", 1000)]
    assert [(group.count, group.kind) for group in config.instance_group] == [
        (0, model_config_pb2.ModelInstanceGroup.KIND_CPU)
    ]
    assert not config.HasField("dynamic_batching")


def test_the_side_file_declares_the_preprocessing_of_these_weights(model_directory):
    side_file = tomllib.loads((model_directory / "shoal.toml").read_text())

    how = Preprocessing.model_validate(side_file["preprocessing"])

    assert (how.resize, how.crop, how.filter, how.colour, how.layout) == (256, 224, "bicubic", "RGB", "CHW")
    assert (how.mean, how.std, how.output) == ((127,) * 3, (128,) * 3, "logits")
    assert side_file["batching"] == {"oversize": "split"}


def test_there_is_a_label_for_every_class(model_directory):
    labels = (model_directory / "labels.txt").read_text().splitlines()

    assert len(labels) == 1000
    assert all(labels)
    assert (labels[0], labels[281], labels[967], labels[999]) == ("tench", "tabby cat", "espresso", "toilet paper")


def test_other_models_of_the_repository_are_left_alone(tmp_path):
    (tmp_path / "resnet").mkdir()

    write_repository(tmp_path)

    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["efficientnet-lite0", "resnet"]


def test_a_model_that_is_there_is_never_overwritten(tmp_path):
    (tmp_path / "efficientnet-lite0").mkdir()
    (tmp_path / "efficientnet-lite0" / "config.pbtxt").write_text("edited")

    with pytest.raises(RepositoryError, match="found files in the repository already, expected none; remove"):
        write_repository(tmp_path)

    assert (tmp_path / "efficientnet-lite0" / "config.pbtxt").read_text() == "edited"


def test_a_repository_that_cannot_be_written_is_a_sentence_without_a_path(tmp_path):
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(RepositoryError, match="cannot be written") as caught:
        write_repository(tmp_path / "file")

    assert str(tmp_path) not in str(caught.value)


def test_the_cache_is_built_once(tmp_path):
    first = ensure_cached(tmp_path / "cache")
    stamp = (first / "efficientnet-lite0" / "1" / "model.onnx").stat()

    second = ensure_cached(tmp_path / "cache")

    assert second == first
    assert (second / "efficientnet-lite0" / "1" / "model.onnx").stat() == stamp
    assert "57934424" in first.name


def test_builders_at_the_same_time_all_get_one_complete_repository(tmp_path):
    with ThreadPoolExecutor(2) as builders:
        found = list(builders.map(ensure_cached, [tmp_path] * 2))

    assert found[0] == found[1]
    assert files_below(found[0] / "efficientnet-lite0") == FILES
    assert [entry.name for entry in tmp_path.iterdir()] == [found[0].name]


def test_a_cache_that_cannot_be_written_is_a_sentence_without_a_path(tmp_path):
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(RepositoryError, match="cache directory cannot be written") as caught:
        ensure_cached(tmp_path / "file")

    assert str(tmp_path) not in str(caught.value)
