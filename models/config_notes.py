"""What a config.pbtxt may say and what changes nothing here: told once for the log, with its line.

None of it changes what a model answers; what would is honoured, or refused by `config_refusals`.
"""

from collections.abc import Iterator

from models.pbtxt import ConfigText, ModelConfig, enum_word

Note = tuple[str, str]  # field path, why it has no effect

_ACCELERATED = frozenset({"onnxruntime"})
_WITH_GRAPHS = frozenset({"pytorch", "tensorrt"})
_TOP_LEVEL = {
    "cc_model_filenames": "every GPU gets the file default_model_filename",
    "metric_tags": "metrics carry the labels model and version only",
    "model_metrics": "the buckets of the histograms are fixed",
    "runtime": "the backend alone says what runs the model",
}


def notes(text: ConfigText, backend: str) -> Iterator[str]:
    """Sentences about the fields without effect.

    Args:
        text: The configuration as it is in the file, not completed.
        backend: Of the model, which the file may leave open.
    """
    config = text.message
    for path, reason in (*_at_top_level(config), *_of_optimization(config, backend), *_of_groups(config)):
        line = text.lines.line_of(f"{path}[0]")  # lists are found by their first element, other fields by themselves
        where = text.lines.source if line is None else f"{text.lines.source}:{line}"
        yield f"{where}: {path}: has no effect: {reason}"


def _at_top_level(config: ModelConfig) -> Iterator[Note]:
    if config.ensemble_scheduling.max_inflight_requests:
        yield "ensemble_scheduling.max_inflight_requests", "each step of a request runs once"
    for index, sample in enumerate(config.model_warmup):
        if not sample.batch_size:
            yield f"model_warmup[{index}]", "its batch_size is 0, as if not given; write batch_size: 1 or more"
    present = {field.name for field, _ in config.ListFields()}
    for field, reason in _TOP_LEVEL.items():
        if field in present:
            yield field, reason


def _of_optimization(config: ModelConfig, backend: str) -> Iterator[Note]:
    optimization = config.optimization
    if optimization.graph.level:
        yield "optimization.graph.level", "engines optimise graphs as far as they can"
    if enum_word(optimization, "priority") != "PRIORITY_DEFAULT":
        yield "optimization.priority", "models that share a device take turns"
    for memory in ("input_pinned_memory", "output_pinned_memory"):
        if optimization.HasField(memory) and not getattr(optimization, memory).enable:
            yield f"optimization.{memory}", "copies to and from a GPU always use pinned memory"
    for field in ("gather_kernel_buffer_threshold", "eager_batching"):
        if getattr(optimization, field):
            yield f"optimization.{field}", "rows are gathered when their batch starts"
    yield from _of_cuda(config, backend)
    yield from _of_accelerators(config, backend)


def _of_cuda(config: ModelConfig, backend: str) -> Iterator[Note]:
    cuda = config.optimization.cuda
    if cuda.graphs and backend not in _WITH_GRAPHS:
        yield "optimization.cuda.graphs", f'backend "{backend}" has no CUDA graphs'
    if cuda.busy_wait_events:
        yield "optimization.cuda.busy_wait_events", "the threads of GPU instances sleep while they wait"
    if cuda.output_copy_stream:
        yield "optimization.cuda.output_copy_stream", "copies have a stream of their own anyway"
    if cuda.graph_spec:
        yield "optimization.cuda.graph_spec", "with graphs: true, one is recorded for each size that is run"


def _of_accelerators(config: ModelConfig, backend: str) -> Iterator[Note]:
    accelerators = config.optimization.execution_accelerators
    kinds = {enum_word(group, "kind") for group in config.instance_group}
    for place, unused, other in (
        ("gpu_execution_accelerator", {"KIND_CPU"}, "CPU"),
        ("cpu_execution_accelerator", {"KIND_GPU"}, "GPUs"),
    ):
        path = f"optimization.execution_accelerators.{place}"
        if not getattr(accelerators, place):
            continue
        if backend not in _ACCELERATED:
            yield path, f'backend "{backend}" takes no accelerators, it runs the model as it is'
        elif kinds == unused:
            yield path, f"all instance groups are on the {other}"


def _of_groups(config: ModelConfig) -> Iterator[Note]:
    for index, group in enumerate(config.instance_group):
        if group.host_policy:
            yield f"instance_group[{index}].host_policy", "there are no host policies; the system places processes"
        if group.profile:
            yield (
                f"instance_group[{index}].profile",
                "the engine's profiles are read from it, and the one that fits is taken",
            )
