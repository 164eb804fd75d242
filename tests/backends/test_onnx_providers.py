"""Which providers of ONNX Runtime compute a model, and with which options, as far as no GPU is needed to tell."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from backends.errors import LoadError
from backends.onnx_engine.providers import CPU, CUDA, OPENVINO, TENSORRT, Provider, choose_providers, engine_cache
from backends.onnx_engine.settings import read_settings
from backends.ports import Placement
from models.spec import Accelerator, ExecutionSpec
from models.tensors import DataType
from tests.backends.builders import model, tensor

EVERYTHING = (TENSORRT, CUDA, OPENVINO, CPU)
IMAGE = tensor("image", DataType.FP32, (3, 224, 224))


def accelerator(name: str, **parameters: str) -> Accelerator:
    return Accelerator(name=name, parameters=parameters)


def providers(
    *accelerators: Accelerator,
    device: str = "gpu3",
    available: Sequence[str] = EVERYTHING,
    parameters: Mapping[str, str] | None = None,
    **changes: object,
) -> tuple[Provider, ...]:
    spec = model(inputs=[IMAGE], backend="onnxruntime", **(parameters or {}), **changes)
    execution = ExecutionSpec(gpu_accelerators=accelerators, cpu_accelerators=accelerators)
    placement = Placement(device=device, cores=3, cache_dir=Path("cache"))
    spec = replace(spec, execution=execution)
    return choose_providers(spec, placement, read_settings(spec, placement), available)


def options(name: str, *accelerators: Accelerator, **changes: object) -> Mapping[str, str]:
    (found,) = [provider.options for provider in providers(*accelerators, **changes) if provider.name == name]
    return found


def test_on_a_cpu_the_cpu_computes():
    assert providers(device="cpu", available=[CPU]) == (Provider(CPU),)


def test_openvino_gets_no_more_threads_than_the_model_has():
    assert providers(accelerator("openvino"), device="cpu") == (
        Provider(OPENVINO, {"device_type": "CPU", "num_of_threads": "3"}),
        Provider(CPU),
    )


@pytest.mark.parametrize(
    ("accelerators", "names"),
    [
        pytest.param([], [CUDA, CPU], id="default"),
        pytest.param([accelerator("cuda")], [CUDA, CPU], id="cuda"),
        pytest.param([accelerator("tensorrt")], [TENSORRT, CUDA, CPU], id="tensorrt"),
        pytest.param([accelerator("cuda"), accelerator("tensorrt")], [TENSORRT, CUDA, CPU], id="both"),
    ],
)
def test_on_a_gpu_cuda_computes_what_tensorrt_is_not_asked_for_or_cannot(
    accelerators: list[Accelerator], names: list[str]
):
    assert [provider.name for provider in providers(*accelerators)] == names


def test_cuda_searches_by_heuristic_and_takes_the_memory_that_it_needs():
    assert options(CUDA) == {
        "device_id": "0",
        "cudnn_conv_algo_search": "HEURISTIC",
        "cudnn_conv_use_max_workspace": "1",
        "arena_extend_strategy": "kSameAsRequested",
        "do_copy_in_default_stream": "1",
    }


def test_options_of_cuda_come_from_the_accelerator_then_from_the_parameters_then_from_the_defaults():
    found = options(
        CUDA,
        accelerator("cuda", cudnn_conv_algo_search="EXHAUSTIVE", use_tf32="false"),
        parameters={"cudnn_conv_algo_search": "2", "gpu_mem_limit": "1000000000"},
    )

    assert found["cudnn_conv_algo_search"] == "EXHAUSTIVE"
    assert found["use_tf32"] == "0"
    assert found["gpu_mem_limit"] == "1000000000"
    assert found["arena_extend_strategy"] == "kSameAsRequested"


def test_tensorrt_keeps_its_engines_and_builds_them_for_all_sizes_before_the_first_run():
    assert options(TENSORRT, accelerator("tensorrt"), max_batch_rows=48) == {
        "device_id": "0",
        "trt_engine_cache_enable": "True",
        "trt_engine_cache_path": "cache/onnxruntime-tensorrt/m/1",
        "trt_timing_cache_enable": "True",
        "trt_timing_cache_path": "cache/onnxruntime-tensorrt/m/1",
        "trt_profile_min_shapes": "image:1x3x224x224",
        "trt_profile_opt_shapes": "image:48x3x224x224",
        "trt_profile_max_shapes": "image:48x3x224x224",
    }


def test_the_profile_is_that_of_the_configured_sizes():
    found = options(TENSORRT, accelerator("tensorrt"), allowed_rows=(4, 16))

    assert (found["trt_profile_min_shapes"], found["trt_profile_max_shapes"]) == (
        "image:4x3x224x224",
        "image:16x3x224x224",
    )


def test_a_model_without_batch_dimension_has_one_shape():
    assert options(TENSORRT, accelerator("tensorrt"), max_batch_rows=0)["trt_profile_max_shapes"] == "image:3x224x224"


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        pytest.param({"precision_mode": "FP16"}, {"trt_fp16_enable": "True"}, id="half"),
        pytest.param({"precision_mode": "BF16"}, {"trt_bf16_enable": "True"}, id="bfloat"),
        pytest.param({"precision_mode": "INT8"}, {"trt_int8_enable": "True"}, id="quantised"),
        pytest.param({"precision_mode": "FP32"}, {}, id="single"),
        pytest.param(
            {"max_workspace_size_bytes": "1073741824"}, {"trt_max_workspace_size": "1073741824"}, id="workspace"
        ),
        pytest.param({"trt_engine_cache_path": "engines"}, {"trt_engine_cache_path": "engines"}, id="cache"),
        pytest.param({"trt_engine_cache_enable": "false"}, {"trt_engine_cache_enable": "False"}, id="no cache"),
        pytest.param({"trt_builder_optimization_level": "5"}, {"trt_builder_optimization_level": "5"}, id="level"),
        pytest.param({"trt_auxiliary_streams": "-1"}, {"trt_auxiliary_streams": "-1"}, id="streams"),
        pytest.param(
            {"int8_calibration_table_name": "table"}, {"trt_int8_calibration_table_name": "table"}, id="calibration"
        ),
    ],
)
def test_tensorrt_has_tritons_parameters(parameters: dict[str, str], expected: dict[str, str]):
    default = options(TENSORRT, accelerator("tensorrt"))

    assert options(TENSORRT, accelerator("tensorrt", **parameters)) == {**default, **expected}


@pytest.mark.parametrize(
    ("accelerators", "changes", "text"),
    [
        pytest.param(
            [accelerator("gpu_io")],
            {},
            "model 'm': accelerator 'gpu_io' is not known on a GPU, expected tensorrt or cuda",
            id="accelerator on a GPU",
        ),
        pytest.param(
            [accelerator("tensorrt")],
            {"device": "cpu"},
            "model 'm': accelerator 'tensorrt' is not known on a CPU, expected openvino",
            id="accelerator on a CPU",
        ),
        pytest.param(
            [accelerator("openvino", streams="2")],
            {"device": "cpu"},
            "model 'm': accelerator 'openvino': parameter 'streams' is not known, expected one of none",
            id="parameter of openvino",
        ),
        pytest.param(
            [accelerator("tensorrt", precision_mode="FP8")],
            {},
            "model 'm': accelerator 'tensorrt': parameter 'precision_mode' is 'FP8', "
            "expected FP32 or FP16 or INT8 or BF16",
            id="precision",
        ),
        pytest.param(
            [accelerator("cuda", device_id="1")],
            {},
            "model 'm': accelerator 'cuda': parameter 'device_id' cannot be set: "
            "the GPUs of a model are those of its instance groups",
            id="device",
        ),
        pytest.param(
            [accelerator("tensorrt")],
            {"available": [CUDA, CPU]},
            "model 'm': needs TensorrtExecutionProvider, this build of ONNX Runtime has CUDAExecutionProvider, "
            "CPUExecutionProvider; install onnxruntime-gpu (`make setup-gpu`) and TensorRT",
            id="build without tensorrt",
        ),
        pytest.param(
            [accelerator("openvino")],
            {"device": "cpu", "available": [CPU]},
            "model 'm': needs OpenVINOExecutionProvider, this build of ONNX Runtime has CPUExecutionProvider; "
            "install onnxruntime-openvino instead of onnxruntime",
            id="build without openvino",
        ),
        pytest.param(
            [accelerator("tensorrt", trt_profile_min_shapes="image:1x3x224x224")],
            {},
            "model 'm': accelerator 'tensorrt' needs the parameters trt_profile_min_shapes, trt_profile_opt_shapes, "
            "trt_profile_max_shapes, because some of them are given",
            id="part of a profile",
        ),
    ],
)
def test_what_cannot_be_had_is_refused_with_what_can(
    accelerators: list[Accelerator], changes: dict[str, object], text: str
):
    with pytest.raises(LoadError) as caught:
        providers(*accelerators, **changes)

    assert str(caught.value) == text


@pytest.mark.parametrize("name", ["tensorrt", "cuda"])
def test_an_unknown_parameter_is_refused_with_those_that_can_be_set(name: str):
    with pytest.raises(
        LoadError, match=rf"'{name}': parameter 'nonsense' is not known, expected one of \w+, "
    ) as caught:
        providers(accelerator(name, nonsense="1"))

    assert "device_id" not in str(caught.value)


def variable(*accelerators: Accelerator) -> tuple[Provider, ...]:
    spec = replace(
        model(inputs=[tensor("x", dims=(-1,))], backend="onnxruntime"),
        execution=ExecutionSpec(gpu_accelerators=accelerators),
    )
    placement = Placement(device="gpu0", cache_dir=Path("cache"))
    return choose_providers(spec, placement, read_settings(spec, placement), EVERYTHING)


def test_tensorrt_does_not_guess_a_profile_for_variable_dims():
    with pytest.raises(
        LoadError, match=r"needs the parameters trt_profile_min.*, because inputs have variable dims \(x\)"
    ):
        variable(accelerator("tensorrt"))


def test_a_given_profile_serves_variable_dims():
    profile = {f"trt_profile_{bound}_shapes": f"x:1x{length}" for bound, length in (("min", 1), ("opt", 4), ("max", 9))}

    found = variable(accelerator("tensorrt", **profile))

    assert profile.items() <= found[0].options.items()


@pytest.mark.parametrize(
    ("accelerators", "path"),
    [
        pytest.param([], None, id="no tensorrt"),
        pytest.param([accelerator("tensorrt")], Path("cache/onnxruntime-tensorrt/m/1"), id="default"),
        pytest.param([accelerator("tensorrt", trt_engine_cache_path="e")], Path("e"), id="given"),
        pytest.param([accelerator("tensorrt", trt_engine_cache_enable="0")], None, id="off"),
    ],
)
def test_the_directory_of_engines_is_known_where_there_is_one(accelerators: list[Accelerator], path: Path | None):
    assert engine_cache(providers(*accelerators)) == path
