"""Short ways to say what a scheduler test is about; times in microseconds, as in the vectors."""

import re
from collections.abc import Callable, Sequence

from batching.clock import MICROSECOND_NS
from batching.core.limits import Limits
from batching.core.policy import Policy
from batching.core.scheduler import Scheduler
from batching.simulation import Arrival, Outcome, Simulation

_ARRIVAL = re.compile(r"(?P<name>\w+)@(?P<at>\d+)(x(?P<rows>\d+))?(#(?P<shape>\w))?(p(?P<priority>\d))?")


def arrivals(text: str) -> list[Arrival]:
    """`a@0 b@100x3 c@200#q`: name, time in us, optional rows, shape and priority."""
    found = [_ARRIVAL.fullmatch(word) for word in text.split()]
    assert all(found), text
    return [
        Arrival(
            name=match["name"],
            at_ns=int(match["at"]) * MICROSECOND_NS,
            rows=int(match["rows"] or 1),
            shape_key=match["shape"],
            priority=int(match["priority"] or 0),
        )
        for match in found
        if match
    ]


def scheduler(policy: Policy, max_batch_rows: int, **limits: int) -> Scheduler:
    return Scheduler(policy, Limits(max_batch_rows=max_batch_rows, **limits))


def constant_us(service_us: int) -> Callable[[int], int]:
    return lambda _rows: service_us * MICROSECOND_NS


def simulate(
    policy: Policy, load: Sequence[Arrival], *, max_batch_rows: int, service_us: int = 1000, instances: int = 1
) -> Outcome:
    names = [f"instance_{number}" for number in range(instances)]
    return Simulation(scheduler(policy, max_batch_rows), constant_us(service_us), names).run(load)


def starts(outcome: Outcome) -> str:
    """`0:abc 1000:de`: start time in us and members of each batch."""
    return " ".join(
        f"{execution.start_ns // MICROSECOND_NS}:{''.join(execution.members)}" for execution in outcome.executions
    )
