"""``optimization`` of a config.pbtxt: what of it says how batches are executed."""

from collections.abc import Iterable, Iterator
from typing import Any

from models.errors import ConfigError
from models.pbtxt import ConfigText, ModelConfig
from models.spec import Accelerator, ExecutionSpec

_PLACES = ("gpu_execution_accelerator", "cpu_execution_accelerator")


def accelerator_problems(text: ConfigText) -> Iterator[ConfigError]:
    """Every execution accelerator has a name, and each is there once."""
    for place in _PLACES:
        names: set[str] = set()
        for index, accelerator in enumerate(getattr(text.message.optimization.execution_accelerators, place)):
            path = f"optimization.execution_accelerators.{place}[{index}].name"
            if not accelerator.name:
                expected, fix = "the name of an accelerator", 'e.g. name: "tensorrt"'
                yield text.lines.error(path, found="no name", expected=expected, fix=fix)
            elif accelerator.name in names:
                yield text.lines.error(path, found=f'"{accelerator.name}" a second time', expected="each one once")
            names.add(accelerator.name)


def execution(config: ModelConfig) -> ExecutionSpec:
    """The executor rules of a checked configuration; shoal.toml may add to them."""
    optimization = config.optimization
    return ExecutionSpec(
        gpu_accelerators=_accelerators(optimization.execution_accelerators.gpu_execution_accelerator),
        cpu_accelerators=_accelerators(optimization.execution_accelerators.cpu_execution_accelerator),
        cuda_graphs=optimization.cuda.graphs,
    )


def _accelerators(entries: Iterable[Any]) -> tuple[Accelerator, ...]:
    return tuple(Accelerator(name=entry.name, parameters=dict(entry.parameters)) for entry in entries)
