"""How the embedded model's speed depends on the split of the cores among instances, and which plan is chosen."""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from backends.cpu_budget import cpu_budget
from backends.cpu_plan import choose_plan, splits
from backends.cpu_trial import measure
from backends.ports import Executor, Placement
from backends.registry import create_executors
from batching.clock import MonotonicClock
from models.repository import scan
from models.spec import BatchingSpec, ModelSpec
from models.zoo.embedded import ensure_cached

SIZES = (1, 2, 4, 8)


def embedded() -> ModelSpec:
    """The embedded model, with batches as large as are tried."""
    spec = scan([ensure_cached(Path.home() / ".cache" / "shoal")]).models[0].versions[0]
    return replace(spec, max_batch_rows=max(SIZES), batching=BatchingSpec())


def main(rounds: int) -> None:
    """Print each split's speed at each size, as ratios to one instance at batch 1, then the plan of each round."""
    spec, budget, clock = embedded(), cpu_budget(), MonotonicClock()

    def make(instances: int, threads: int) -> Sequence[Executor]:
        placement = Placement(instances=instances, cores=instances * threads)
        return [lanes[0] for lanes in create_executors(spec, placement)]

    print(budget)
    figures = [figure for found in measure(spec, splits(budget.cores), SIZES, make, clock) for figure in found]
    best = {(figure.split, figure.rows): figure for figure in sorted(figures, key=lambda f: f.rows_per_s)}
    base = best[splits(budget.cores)[0], 1].rows_per_s
    for (split, rows), figure in sorted(best.items()):
        print(
            f"{split.instances:3} x {split.threads:3} threads, batch {rows}: {figure.rows_per_s:6.0f} rows/s, "
            f"{figure.rows_per_s / base:.2f} times one instance at batch 1"
        )
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            plan = choose_plan(spec, cores=budget.cores, cache_dir=Path(cache), make=make, clock=clock)
        print(plan.explanation)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
