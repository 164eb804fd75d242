"""What a session of ONNX Runtime is opened with, from a model's parameters and its share of the cores."""

import difflib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from backends.onnx_engine.options import Option, flag, number, numbered, read_option
from backends.ports import Placement
from models.spec import ModelSpec

logger = logging.getLogger(__name__)

CUDA_PARAMETERS = {
    "arena_extend_strategy": Option(numbered("kNextPowerOfTwo", "kSameAsRequested")),
    "cudnn_conv_algo_search": Option(numbered("EXHAUSTIVE", "HEURISTIC", "DEFAULT")),
    "do_copy_in_default_stream": Option(flag),
    "gpu_mem_limit": Option(number),
}
"""Options of the CUDA provider that Triton also takes as parameters of the model."""


def _arenas(text: str) -> str:
    if not re.fullmatch(r"(cpu:0|gpu:\d+)(;(cpu:0|gpu:\d+))*", text):
        raise ValueError('devices, e.g. "cpu:0;gpu:0"')
    return re.sub(r"gpu:\d+", "gpu:0", text)  # a process of ours sees one GPU


_SHRINKAGE = "memory.enable_memory_arena_shrinkage"
_DEVICE_ALLOCATOR = "session.use_device_allocator_for_initializers"
PARAMETERS = CUDA_PARAMETERS | {
    "intra_op_thread_count": Option(number),
    "inter_op_thread_count": Option(number),
    "execution_mode": Option(numbered("sequential", "parallel")),
    "enable_mem_arena": Option(flag),
    "enable_mem_pattern": Option(flag),
    "share_session_between_instances": Option(flag),
    _SHRINKAGE: Option(_arenas),
    _DEVICE_ALLOCATOR: Option(flag),
}
# A name that starts like this, or nearly is a known one, was meant for the engine: to ignore it would hide a mistake.
_ENGINE_PREFIXES = ("session.", "memory.", "ep.", "mlas.", "trt_", "cudnn_", "gpu_", "enable_", "intra_op", "inter_op")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """What a session is opened and run with.

    Attributes:
        intra_op_threads: Threads inside one operator, the calling one included.
        inter_op_threads: Operators of one run that may execute at once.
        is_parallel: Whether several operators of one run may execute at once at all.
        has_arena: Whether memory on the CPU is kept between runs.
        has_pattern: Whether the memory of a run is planned by that of earlier runs of the same shapes.
        is_shared: Whether all instances use one session.
        session_entries: Further entries of the engine's configuration.
        run_entries: Likewise, for each run.
        cuda_options: Of the CUDA provider.
    """

    intra_op_threads: int = 1
    inter_op_threads: int = 1
    is_parallel: bool = False
    has_arena: bool = True
    has_pattern: bool = True
    is_shared: bool = True
    session_entries: Mapping[str, str] = field(default_factory=dict)
    run_entries: Mapping[str, str] = field(default_factory=dict)
    cuda_options: Mapping[str, str] = field(default_factory=dict)


def read_settings(spec: ModelSpec, placement: Placement) -> SessionSettings:
    """The settings that a model's parameters and the cores of its placement give; 0 threads mean the default number.

    Raises:
        LoadError: A parameter is not valid, or is meant for ONNX Runtime and not known.
    """
    given = dict(_given(spec))
    threads = int(given.get("intra_op_thread_count", 0)) or max(1, placement.cores // placement.instances)
    operators = int(given.get("inter_op_thread_count", 0))
    mode = given.get("execution_mode", "parallel" if operators > 1 else "sequential")
    return SessionSettings(
        intra_op_threads=threads,
        inter_op_threads=1 if mode == "sequential" else operators or threads,
        is_parallel=mode == "parallel",
        has_arena=given.get("enable_mem_arena") != "0",
        has_pattern=given.get("enable_mem_pattern") != "0",
        is_shared=given.get("share_session_between_instances") != "0",
        session_entries={name: text for name, text in given.items() if name == _DEVICE_ALLOCATOR},
        run_entries={name: text for name, text in given.items() if name == _SHRINKAGE},
        cuda_options={name: text for name, text in given.items() if name in CUDA_PARAMETERS},
    )


def _given(spec: ModelSpec) -> list[tuple[str, str]]:
    """The parameters that are meant for the engine; a configuration may hold others, for people or programs."""
    given = []
    for name, text in spec.parameters.items():
        is_meant = name.startswith(_ENGINE_PREFIXES) or difflib.get_close_matches(name, PARAMETERS, cutoff=0.8)
        if name in PARAMETERS or is_meant:
            given.append(read_option(f"model '{spec.name}': parameter", name, text, PARAMETERS))
        else:
            logger.info("model '%s': parameter '%s' is none of backend 'onnxruntime'", spec.name, name)
    return given
