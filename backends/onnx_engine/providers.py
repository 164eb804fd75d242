"""Which execution providers of ONNX Runtime compute a model, with which options: pure of the engine.

Options have the names and values of Triton's backend; the engine's own are those of its provider's documentation.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from backends.errors import LoadError
from backends.onnx_engine.options import Option, flag, number, one_of, read_options, word_flag
from backends.onnx_engine.settings import CUDA_PARAMETERS, SessionSettings
from backends.ports import Placement
from backends.sizes import executed_sizes
from models.spec import Accelerator, ModelSpec

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"
OPENVINO = "OpenVINOExecutionProvider"

_DEVICE = Option(refusal="the GPUs of a model are those of its instance groups")
_STREAM = Option(refusal="the engine makes its streams itself")
_ALLOCATOR = Option(refusal="the engine allocates its memory itself")
_GRAPH = Option(
    refusal="a recorded graph serves one batch size; backends pytorch and tensorrt record one for each size"
)
_CUDA_OPTIONS = CUDA_PARAMETERS | {
    "cudnn_conv1d_pad_to_nc1d": Option(flag),
    "cudnn_conv_use_max_workspace": Option(flag),
    "enable_skip_layer_norm_strict_mode": Option(flag),
    "fuse_conv_bias": Option(flag),
    "prefer_nhwc": Option(flag),
    "sdpa_kernel": Option(number),
    "tunable_op_enable": Option(flag),
    "tunable_op_max_tuning_duration_ms": Option(number),
    "tunable_op_tuning_enable": Option(flag),
    "use_ep_level_unified_stream": Option(flag),
    "use_tf32": Option(flag),
    "device_id": _DEVICE,
    "enable_cuda_graph": _GRAPH,
    "gpu_external_alloc": _ALLOCATOR,
    "gpu_external_empty_cache": _ALLOCATOR,
    "gpu_external_free": _ALLOCATOR,
    "has_user_compute_stream": _STREAM,
    "user_compute_stream": _STREAM,
}
_CUDA_DEFAULTS = {
    "device_id": "0",  # a process of ours sees one GPU
    # To try every algorithm takes 0.3 to 1.3 s for each new shape and rarely finds a better one.
    "cudnn_conv_algo_search": "HEURISTIC",
    "cudnn_conv_use_max_workspace": "1",  # else the heuristic may pick an algorithm that is slow and needs no memory
    # Doubling would hold up to twice the memory that the largest batch needs.
    "arena_extend_strategy": "kSameAsRequested",
    "do_copy_in_default_stream": "1",  # another stream races with the computation in some models
}

_PRECISION_FLAGS = {"FP16": "trt_fp16_enable", "BF16": "trt_bf16_enable", "INT8": "trt_int8_enable"}
_FLAGS = (
    "build_heuristics_enable", "context_memory_sharing_enable", "detailed_build_log", "dla_enable",
    "dump_ep_context_model", "dump_subgraphs", "engine_cache_enable", "force_sequential_engine_build",
    "force_timing_cache", "layer_norm_fp32_fallback", "sparsity_enable", "timing_cache_enable",
)  # fmt: skip
_NUMBERS = (
    "builder_optimization_level", "dla_core", "ep_context_embed_mode", "max_partition_iterations", "min_subgraph_size",
)  # fmt: skip
_TEXTS = (
    "auxiliary_streams", "engine_cache_path", "engine_cache_prefix", "ep_context_file_path", "extra_plugin_lib_paths",
    "profile_max_shapes", "profile_min_shapes", "profile_opt_shapes", "tactic_sources", "timing_cache_path",
)  # fmt: skip
_TENSORRT_OPTIONS = {
    "precision_mode": Option(one_of("FP32", "FP16", "INT8", "BF16")),
    "max_workspace_size_bytes": Option(number, name="trt_max_workspace_size"),
    "int8_calibration_table_name": Option(name="trt_int8_calibration_table_name"),
    "int8_use_native_calibration_table": Option(word_flag, name="trt_int8_use_native_calibration_table"),
    **{f"trt_{name}": Option(word_flag) for name in _FLAGS},
    **{f"trt_{name}": Option(number) for name in _NUMBERS},
    **{f"trt_{name}": Option() for name in _TEXTS},
    "trt_cuda_graph_enable": _GRAPH,
    "device_id": _DEVICE,
}
_PROFILE = tuple(f"trt_profile_{bound}_shapes" for bound in ("min", "opt", "max"))
_PACKAGES = {
    CUDA: "onnxruntime-gpu (`make setup-gpu`)",
    TENSORRT: "onnxruntime-gpu (`make setup-gpu`) and TensorRT",
    OPENVINO: "onnxruntime-openvino instead of onnxruntime",
}


class Provider(NamedTuple):
    """An execution provider by the engine's name, with its options under the engine's names."""

    name: str
    options: Mapping[str, str] = {}


def choose_providers(
    spec: ModelSpec, placement: Placement, settings: SessionSettings, available: Sequence[str]
) -> tuple[Provider, ...]:
    """The providers of a model's sessions, in order of preference; the CPU, which can run every operator, is the last.

    Args:
        spec: The model version.
        placement: Where it runs.
        settings: Of the sessions.
        available: The providers that this build of the engine has.

    Raises:
        LoadError: An accelerator is not known, one of its parameters is not valid, or this build lacks the provider.
    """
    if placement.is_gpu:
        wanted = _on_gpu(spec, placement, settings)
    else:
        wanted = [_on_cpu(spec, accelerator, settings) for accelerator in spec.execution.cpu_accelerators]
    for provider in wanted:
        if provider.name not in available:
            raise LoadError(
                f"model '{spec.name}': needs {provider.name}, this build of ONNX Runtime has {', '.join(available)}; "
                f"install {_PACKAGES[provider.name]}"
            )
    return (*wanted, Provider(CPU))


def engine_cache(providers: Sequence[Provider]) -> Path | None:
    """The directory into which the TensorRT provider writes its engines, if it is one of these and does."""
    for provider in providers:
        if provider.options.get("trt_engine_cache_enable") == "True":
            return Path(provider.options["trt_engine_cache_path"])
    return None


def _on_cpu(spec: ModelSpec, accelerator: Accelerator, settings: SessionSettings) -> Provider:
    if accelerator.name != "openvino":
        raise _unknown(spec, accelerator, "a CPU", "openvino")
    read_options(_parameter_of(spec, accelerator), accelerator.parameters, {})
    return Provider(OPENVINO, {"device_type": "CPU", "num_of_threads": str(settings.intra_op_threads)})


def _on_gpu(spec: ModelSpec, placement: Placement, settings: SessionSettings) -> list[Provider]:
    """TensorRT if it is asked for, whatever its place in the list, and CUDA for what TensorRT cannot run."""
    cuda = {**_CUDA_DEFAULTS, **settings.cuda_options}
    wanted = []
    for accelerator in spec.execution.gpu_accelerators:
        what = _parameter_of(spec, accelerator)
        if accelerator.name == "cuda":
            cuda |= read_options(what, accelerator.parameters, _CUDA_OPTIONS)
        elif accelerator.name == "tensorrt":
            given = read_options(what, accelerator.parameters, _TENSORRT_OPTIONS)
            wanted.append(Provider(TENSORRT, _tensorrt_options(spec, placement, given)))
        else:
            raise _unknown(spec, accelerator, "a GPU", "tensorrt or cuda")
    return [*wanted, Provider(CUDA, cuda)]


def _tensorrt_options(spec: ModelSpec, placement: Placement, given: Mapping[str, str]) -> Mapping[str, str]:
    """The given options over the defaults: engines and timings are kept, and one engine serves all sizes."""
    cache = str(placement.cache_dir / "onnxruntime-tensorrt" / spec.name / str(spec.version))
    precision = given.get("precision_mode", "FP32")
    options = {
        "device_id": "0",
        "trt_engine_cache_enable": "True",
        "trt_engine_cache_path": cache,
        "trt_timing_cache_enable": "True",
        "trt_timing_cache_path": cache,
    }
    options |= {name: text for name, text in given.items() if name != "precision_mode"}
    if precision in _PRECISION_FLAGS:
        options[_PRECISION_FLAGS[precision]] = "True"
    return options if all(name in options for name in _PROFILE) else {**options, **_profile(spec, options)}


def _profile(spec: ModelSpec, given: Mapping[str, str]) -> Mapping[str, str]:
    """Shapes for which the engine is built; outside of them it would be built again, which takes minutes.

    The best shape is the largest, because a GPU that is busy runs full batches.
    """
    variable = [declared.name for declared in spec.inputs if declared.has_variable_dims]
    if variable or any(name in given for name in _PROFILE):
        found = f"inputs have variable dims ({', '.join(variable)})" if variable else "some of them are given"
        raise LoadError(
            f"model '{spec.name}': accelerator 'tensorrt' needs the parameters {', '.join(_PROFILE)}, because {found}"
        )
    sizes = executed_sizes(spec, is_costly=True, is_gpu=True)
    return dict(zip(_PROFILE, (_shapes(spec, rows) for rows in (sizes[0], sizes[-1], sizes[-1])), strict=True))


def _shapes(spec: ModelSpec, rows: int) -> str:
    """All inputs as the provider wants them, e.g. ``image:8x3x224x224,mask:8x1``."""
    leading = (rows,) if spec.has_batch_dimension else ()
    return ",".join(f"{declared.name}:{'x'.join(map(str, (*leading, *declared.dims)))}" for declared in spec.inputs)


def _parameter_of(spec: ModelSpec, accelerator: Accelerator) -> str:
    return f"model '{spec.name}': accelerator '{accelerator.name}': parameter"


def _unknown(spec: ModelSpec, accelerator: Accelerator, where: str, known: str) -> LoadError:
    return LoadError(f"model '{spec.name}': accelerator '{accelerator.name}' is not known on {where}, expected {known}")
