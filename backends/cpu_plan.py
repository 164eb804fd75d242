"""How many instances of a model a CPU gets, and how many threads each: measured, not guessed.

Neither extreme is always the best: the threads of one instance wait for each other after every operator, many instances
share caches and memory. So where the configuration leaves it open, a few ways to split the cores are tried for a moment
each. The result is kept in the cache directory for the next start.
"""

import dataclasses
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from backends.blank import variable_inputs
from backends.cpu_plan_cache import CpuPlan, plan_file, read_plan, write_plan
from backends.cpu_trial import Figure, Split, measure
from backends.errors import ExecutionError
from backends.ports import Executor
from backends.sizes import executed_sizes
from batching.clock import SECOND_NS, Clock
from models.spec import ModelSpec

logger = logging.getLogger(__name__)

MARGIN = 0.05
"""Rows a second that differ by less than this share are equal: short windows are not more exact."""

_LARGER_ROWS = 8
_LEAST_USE = 0.75
_THREAD_PARAMETERS = ("intra_op_thread_count", "inter_op_thread_count")


def is_open(spec: ModelSpec) -> bool:
    """Whether the configuration says neither how many instances the model has nor how many threads each."""
    has_counts = any(not group.is_default_count for group in spec.instance_groups)
    has_threads = any(spec.parameters.get(name, "0") != "0" for name in _THREAD_PARAMETERS)
    return len(spec.instance_groups) == 1 and not has_counts and not has_threads


def splits(cores: int) -> Sequence[Split]:
    """Ways to split the cores, from one instance up: powers of two, and one for each core.

    Splits that leave more than a quarter of the cores idle are left out.
    """
    counts = sorted({1 << exponent for exponent in range(cores.bit_length())} | {cores})
    found = [Split(count, cores // count) for count in counts if count <= cores]
    return [split for split in found if split.instances * split.threads >= _LEAST_USE * cores]


def decide(figures: Sequence[Figure], margin: float = MARGIN) -> Figure:
    """The fewest instances, then the smallest batch, that come within the margin of the most rows a second.

    Args:
        figures: At least one.
        margin: See `MARGIN`.
    """
    enough = (1 - margin) * max(figure.rows_per_s for figure in figures)
    return min(
        (figure for figure in figures if figure.rows_per_s >= enough),
        key=lambda figure: (figure.split.instances, figure.rows),
    )


def choose_plan(
    spec: ModelSpec,
    *,
    cores: int,
    cache_dir: Path,
    make: Callable[[int, int], Sequence[Executor]],
    clock: Clock,
) -> CpuPlan:
    """The plan for a model whose configuration leaves it open (`is_open`), from the cache or measured; logs why.

    Blocks for half a second, for large models up to about five, so call it in a thread.

    Args:
        spec: The model version.
        cores: Cores that all instances together may use.
        cache_dir: Keeps plans in its directory ``cpu-plans``; may not exist yet, or not be writable.
        make: Executors, not loaded yet, for a number of instances and of threads each. They are closed here.
        clock: Measures.

    Raises:
        LoadError: The model cannot be made ready.
    """
    plan = _known_plan(spec, cores) or _cached_plan(spec, cores, cache_dir, make, clock)
    logger.info("%s", plan.explanation)
    return plan


def _known_plan(spec: ModelSpec, cores: int) -> CpuPlan | None:
    if cores == 1:
        return _unmeasured(spec, Split(1, 1), "there is 1 core")
    variable = variable_inputs(spec)
    return _default_plan(spec, cores, f"inputs have variable dims: {', '.join(variable)}") if variable else None


def _cached_plan(
    spec: ModelSpec, cores: int, cache_dir: Path, make: Callable[[int, int], Sequence[Executor]], clock: Clock
) -> CpuPlan:
    file = plan_file(cache_dir, spec, cores)
    plan = read_plan(file, cores)
    if plan is not None:
        return dataclasses.replace(plan, explanation=f"{plan.explanation}; measured at an earlier start")
    started_ns = clock.now_ns()
    try:
        passes = measure(spec, splits(cores), _sizes(spec), make, clock)
    except ExecutionError as error:
        return _default_plan(spec, cores, f"it does not run on made-up input: {error}")
    plan = _plan(spec, cores, [figure for figures in passes for figure in figures])
    how = f"measured in {(clock.now_ns() - started_ns) / SECOND_NS:.1f} s"
    if len({decide(figures).split for figures in passes}) == 1:
        write_plan(file, plan)
    else:
        how += " with doubtful results, so again at the next start"
    return dataclasses.replace(plan, explanation=f"{plan.explanation}; {how}")


def _sizes(spec: ModelSpec) -> Sequence[int]:
    """The smallest batch, and one of about eight rows: by then an engine has what it gains from batches on a CPU."""
    executed = executed_sizes(spec, is_costly=True, is_gpu=False)
    return sorted({executed[0], max((rows for rows in executed if rows <= _LARGER_ROWS), default=executed[0])})


def _plan(spec: ModelSpec, cores: int, figures: Sequence[Figure]) -> CpuPlan:
    best = decide(figures)
    speeds: dict[Split, float] = {}
    for figure in figures:
        speeds[figure.split] = max(figure.rows_per_s, speeds.get(figure.split, 0))
    others = (
        f"; {split.instances} x {split.threads}: {rows_per_s:.0f}"
        for split, rows_per_s in speeds.items()
        if split != best.split
    )
    untried = [f"{split.instances} x {split.threads}" for split in splits(cores) if split not in speeds]
    return CpuPlan(
        instances=best.split.instances,
        threads=best.split.threads,
        best_rows=best.rows,
        rows_per_s=best.rows_per_s,
        explanation=f"model {spec.name}: {_words(best.split)}: {best.rows_per_s:.0f} rows/s at batch {best.rows}"
        + "".join(others)
        + (f"; no time for {', '.join(untried)}" if untried else ""),
    )


def _default_plan(spec: ModelSpec, cores: int, reason: str) -> CpuPlan:
    instances = min(cores, sum(group.count for group in spec.instance_groups))
    return _unmeasured(spec, Split(instances, cores // instances), reason)


def _unmeasured(spec: ModelSpec, split: Split, reason: str) -> CpuPlan:
    return CpuPlan(
        instances=split.instances,
        threads=split.threads,
        best_rows=0,
        rows_per_s=0.0,
        explanation=f"model {spec.name}: {_words(split)}: not measured, {reason}",
    )


def _words(split: Split) -> str:
    instances = "1 instance" if split.instances == 1 else f"{split.instances} instances"
    return f"{instances} x {split.threads} thread{'s' * (split.threads > 1)}"
