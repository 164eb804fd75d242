"""Scenarios that nobody has designed: drawn at random, from a seed that was not used while the policy was made."""

from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.random import Generator

from batching.clock import MILLISECOND_NS
from batching.simulation import Affine, Table
from batching.simulation.service import SizeTimes
from loadtest.policy_matrix.scenarios import Scenario, closed_loop, mixed, noisy, open_load
from loadtest.policy_matrix.served import Served

SEED = 20_310_416
"""Of the held-out scenarios. Tune on any other one (`--held-out-seed`)."""
COUNT = 45

_KINDS = ("poisson", "bursty", "diurnal", "closed", "think", "mixed")
_WEIGHTS = (0.27, 0.27, 0.06, 0.18, 0.12, 0.10)


def held_out(seed: int = SEED, count: int = COUNT) -> Iterator[Scenario]:
    """So many random scenarios."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        yield noisy(_scenario(rng, number), round(float(rng.uniform(0.01, 0.1)), 2))


def _scenario(rng: Generator, number: int) -> Scenario:
    served = _served(rng, f"random{number}")
    instances = int(rng.choice((1, 2, 4, 8)))
    kind = str(rng.choice(_KINDS, p=_WEIGHTS))
    has_deadline = bool(rng.random() < 0.65)
    multiple = round(float(rng.uniform(2.2, 15.0)), 1)
    percent = round(float(rng.uniform(10, 115 if has_deadline else 90)))
    callers = max(round(instances * served.largest_rows * float(rng.choice((0.1, 0.25, 0.5, 1.0, 1.5)))), 1)
    think_ms = round(served.alone_ns / MILLISECOND_NS * float(rng.uniform(0.5, 10)), 2)
    if kind == "closed":
        return closed_loop(served, instances, callers, family="held out: callers")
    if kind == "think":
        return closed_loop(served, instances, callers, think_ms, family="held out: callers")
    if kind == "mixed":
        return mixed(served, instances, callers, round(percent / 2.5), family="held out: callers")
    multiples = (multiple,) if has_deadline else ()
    family = "held out: deadline" if has_deadline else "held out: open"
    return open_load(_open_kind(kind), served, instances, percent, multiples, family=family)


def _served(rng: Generator, name: str) -> Served:
    base_ms = float(np.exp(rng.uniform(np.log(0.3), np.log(20))))
    largest_rows = int(rng.choice((8, 16, 32, 64)))
    times: SizeTimes
    if rng.random() < 0.7:
        times = Affine(base_ms, base_ms * float(np.exp(rng.uniform(np.log(0.02), np.log(2)))))
    else:
        times = _table(rng, base_ms, largest_rows)
    alone_ms = times.open(rng)(1) / MILLISECOND_NS
    return Served(name, times, largest_rows, pace=float(rng.uniform(0.5, 2)) * alone_ms / 7.2)


def _table(rng: Generator, base_ms: float, largest_rows: int) -> Table:
    """Every doubling of the batch changes the rows per second by a random factor."""
    rates = {1: 1000 / base_ms}
    while (rows := max(rates)) < largest_rows:
        rates[2 * rows] = rates[rows] * float(rng.uniform(0.85, 1.7))
    return Table.of_rates(rates)


def _open_kind(kind: str) -> Literal["poisson", "bursty", "diurnal"]:
    if kind == "bursty":
        return "bursty"
    return "diurnal" if kind == "diurnal" else "poisson"
