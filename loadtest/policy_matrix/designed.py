"""The 89 designed scenarios, by family."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from batching.simulation import ClosedLoop
from loadtest.policy_matrix.scenarios import Kind, Scenario, closed_loop, mixed, noisy, open_load
from loadtest.policy_matrix.served import A10G, A100, CPU, H200, PERHEAVY, PLATEAU, Served

_POISSON: tuple[tuple[Served, int, tuple[int, ...]], ...] = (
    (A10G, 1, (10, 30, 50, 70, 90)),
    (A10G, 2, (30, 60, 90)),
    (A10G, 8, (30, 70)),
    (H200, 1, (10, 40, 80)),
    (CPU, 1, (20, 50, 80)),
    (CPU, 2, (50, 80)),
    (PLATEAU, 1, (40, 80)),
    (A100, 2, (20, 50, 80)),
)

# Model, instances, (percent of the capacity, deadline in multiples of one row's time).
_Deadlines = tuple[tuple[Served, int, tuple[tuple[int, int], ...]], ...]

_POISSON_DEADLINE: _Deadlines = (
    (A10G, 1, ((60, 4), (90, 6), (110, 3), (120, 6))),
    (A10G, 2, ((90, 4),)),
    (A10G, 8, ((100, 3),)),
    (H200, 1, ((80, 20), (110, 20))),
    (CPU, 1, ((90, 8),)),
    (CPU, 2, ((110, 6),)),
    (A100, 2, ((100, 5),)),
    (PLATEAU, 1, ((100, 5),)),
)
_BURSTY_DEADLINE: _Deadlines = (
    (A10G, 1, ((50, 5), (70, 8), (90, 6))),
    (A10G, 2, ((70, 5),)),
    (A10G, 8, ((80, 4),)),
    (H200, 1, ((60, 20), (90, 15))),
    (CPU, 1, ((70, 10),)),
    (CPU, 2, ((80, 8),)),
    (A100, 1, ((80, 8),)),
    (A100, 2, ((90, 6),)),
    (PLATEAU, 1, ((80, 6),)),
)
_CLOSED: tuple[tuple[Served, int, tuple[int, ...]], ...] = (
    (A10G, 1, (1, 4, 8, 16, 32, 40, 64, 128)),
    (A10G, 2, (8, 32)),
    (A10G, 8, (32, 100)),
    (H200, 1, (16,)),
    (CPU, 1, (8,)),
    (CPU, 2, (16,)),
    (A100, 2, (24,)),
    (PLATEAU, 1, (16,)),
    (PERHEAVY, 1, (16,)),
)
_THINK = (
    (A10G, 1, 16, 10), (A10G, 1, 32, 30), (A10G, 1, 64, 100), (A10G, 2, 32, 20), (H200, 1, 16, 1), (CPU, 1, 8, 10),
)  # fmt: skip


def designed() -> list[Scenario]:
    """All of them."""
    return [*_open(), *_with_deadlines(), *_callers(), *_special()]


def _open() -> Iterator[Scenario]:
    for served, instances, loads in _POISSON:
        for percent in loads:
            yield open_load("poisson", served, instances, percent, family="Poisson")
    for served, instances, percent in ((A10G, 1, 30), (A10G, 2, 50), (CPU, 1, 50), (H200, 1, 30)):
        yield open_load("bursty", served, instances, percent, family="bursty, diurnal, noisy")
    yield open_load("diurnal", A10G, 1, 70, family="bursty, diurnal, noisy")
    yield noisy(open_load("poisson", CPU, 2, 70, family="bursty, diurnal, noisy"), 0.2)


def _with_deadlines() -> Iterator[Scenario]:
    yield from _deadlines("poisson", "Poisson + deadline", _POISSON_DEADLINE)
    yield from _deadlines("bursty", "bursty + deadline", _BURSTY_DEADLINE)
    yield open_load("diurnal", A100, 2, 90, (8,), family="diurnal, noise, drift + deadline")
    yield noisy(open_load("poisson", A10G, 1, 80, (6,), family="diurnal, noise, drift + deadline"), 0.2)
    drifting = open_load("poisson", A10G, 1, 60, (6,), family="diurnal, noise, drift + deadline")
    yield replace(drifting, name=f"{drifting.name} x1.5 halfway", drift=((drifting.duration_s / 2, 1.5),))
    yield open_load("poisson", A10G, 1, 90, (5, 20), family="two deadlines")
    yield open_load("bursty", A10G, 1, 80, (5, 20), family="two deadlines")


def _deadlines(kind: Kind, family: str, cases: _Deadlines) -> Iterator[Scenario]:
    for served, instances, loads in cases:
        for percent, multiple in loads:
            yield open_load(kind, served, instances, percent, (multiple,), family=family)


def _callers() -> Iterator[Scenario]:
    for served, instances, counts in _CLOSED:
        for callers in counts:
            yield closed_loop(served, instances, callers, family="closed")
    for served, instances, callers, think_ms in _THINK:
        yield closed_loop(served, instances, callers, think_ms, family="closed, think")


def _special() -> Iterable[Scenario]:
    steps = closed_loop(A10G, 1, 24, family="mixed, steps")
    half_s = steps.duration_s / 2
    yield mixed(A10G, 1, 8, 20, family="mixed, steps")
    yield mixed(A10G, 2, 16, 30, family="mixed, steps")
    yield replace(
        steps,
        name="closed a10g N1 c8 -> c24",
        kind="mixed",
        load=ClosedLoop(clients=8, changes=((half_s, 24),)),
        callers=None,
    )
    yield open_load("poisson", A10G, 1, 50, family="rows 1-8", rows_up_to=8)
    yield open_load("poisson", A10G, 1, 90, (6,), family="rows 1-8 + deadline", rows_up_to=8)
    yield open_load("poisson", A10G, 2, 80, family="rows 1-8", rows_up_to=8)
    yield open_load("poisson", H200, 1, 70, (20,), family="rows 1-8 + deadline", rows_up_to=8)
