"""Tries ways to split the cores among instances of a model, for a moment each.

Other programs disturb such short windows. So of the runs in a window the fastest quarter counts, and each window is
repeated when all the others have had their turn, which tells a busy moment from a slow split.
"""

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from backends.blank import blank_inputs
from backends.ports import Executor
from batching.clock import MILLISECOND_NS, SECOND_NS, Clock
from models.inference import Tensors
from models.spec import ModelSpec

_ALL_WINDOWS_NS = 300 * MILLISECOND_NS
_LIMIT_NS = 5 * SECOND_NS
_LOADS_NS = 20 * SECOND_NS
_PASSES = 2
_LEAST_RUNS = 2
_MOST_RUNS = 1_000
_BARRIER_TIMEOUT_S = 10.0


class Split(NamedTuple):
    """So many instances, with so many threads each."""

    instances: int
    threads: int


class Figure(NamedTuple):
    """What a split achieved with all its instances busy, in batches of so many rows."""

    split: Split
    rows: int
    rows_per_s: float


def measure(
    spec: ModelSpec,
    splits: Sequence[Split],
    sizes: Sequence[int],
    make: Callable[[int, int], Sequence[Executor]],
    clock: Clock,
) -> list[list[Figure]]:
    """Figures for each split and size, in two passes, as far as five seconds of running last.

    Each instance runs in a thread of its own; one figure takes an equal part of 0.3 seconds or two runs, whichever is
    longer. A split or size that would not be done in time, by what has been measured, is left out. Loading does not
    count in the first pass, unless it takes very long: the first load may import an engine.

    Args:
        spec: The model version; its inputs have no variable dims.
        splits: To try, the most likely one first.
        sizes: Batch sizes, ascending.
        make: Executors, not loaded yet, for a number of instances and of threads each. They are closed here.
        clock: Measures.

    Returns:
        A list for each pass: the first has at least one figure, the second has as many or is left out.

    Raises:
        LoadError: The model cannot be made ready.
        ExecutionError: It does not run on zeros.
    """
    trial = _Trial(spec, clock, _ALL_WINDOWS_NS // (_PASSES * len(splits) * len(sizes)))
    passes: list[list[Figure]] = [[] for _ in range(_PASSES)]
    began_ns = clock.now_ns()
    longest_ns = 0  # of the running for one split
    for figures, split in itertools.product(passes, splits):
        is_first = figures is passes[0]
        total_ns = clock.now_ns() - began_ns
        if passes[0] and (
            trial.running_ns + longest_ns > _LIMIT_NS or total_ns > (_LOADS_NS if is_first else _LIMIT_NS)
        ):
            break
        before_ns = trial.running_ns
        figures.extend(trial.figures(split, sizes, make(split.instances, split.threads)))
        longest_ns = max(longest_ns, trial.running_ns - before_ns)
    return [figures for figures in passes if len(figures) == len(passes[0])]


class _Trial:
    def __init__(self, spec: ModelSpec, clock: Clock, window_ns: int) -> None:
        self.running_ns = 0
        self._spec = spec
        self._clock = clock
        self._window_ns = window_ns

    def figures(self, split: Split, sizes: Sequence[int], executors: Sequence[Executor]) -> list[Figure]:
        """Load the executors, measure them with each size, and close them."""
        figures: list[Figure] = []
        with ThreadPoolExecutor(len(executors), thread_name_prefix=f"{self._spec.name}-trial") as threads:
            try:
                list(threads.map(lambda executor: executor.load(), executors))
                for rows in sizes:
                    if figures and not self._has_time_for(rows, figures[-1]):
                        break
                    started_ns = self._clock.now_ns()
                    figures.append(Figure(split, rows, self._rows_per_s(threads, executors, rows)))
                    self.running_ns += self._clock.now_ns() - started_ns
            finally:
                for executor in executors:
                    executor.close()
        return figures

    def _has_time_for(self, rows: int, smaller: Figure) -> bool:
        """Whether a warm-up and the runs would end before the deadline, at the speed of a smaller size."""
        run_ns = round(rows * smaller.split.instances / smaller.rows_per_s * SECOND_NS)
        return self.running_ns + (1 + _LEAST_RUNS) * run_ns <= _LIMIT_NS

    def _rows_per_s(self, threads: ThreadPoolExecutor, executors: Sequence[Executor], rows: int) -> float:
        list(threads.map(lambda executor: executor.warm_up([rows]), executors))
        inputs = blank_inputs(self._spec, rows)
        together = threading.Barrier(len(executors), timeout=_BARRIER_TIMEOUT_S)  # keeps each in a thread of its own
        runs_ns = threads.map(lambda executor: self._fast_run_ns(executor, inputs, rows, together), executors)
        return sum(rows * SECOND_NS / run_ns for run_ns in runs_ns)

    def _fast_run_ns(self, executor: Executor, inputs: Tensors, rows: int, together: threading.Barrier) -> int:
        together.wait()
        durations_ns: list[int] = []
        ended_ns = self._clock.now_ns()
        until_ns = ended_ns + self._window_ns
        while len(durations_ns) < _LEAST_RUNS or (ended_ns < until_ns and len(durations_ns) < _MOST_RUNS):
            started_ns = ended_ns
            executor.run(inputs, rows)
            ended_ns = self._clock.now_ns()
            durations_ns.append(ended_ns - started_ns)
        return max(1, sorted(durations_ns)[len(durations_ns) // 4])
