"""One call for one simulation."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

import numpy as np

from batching.clock import seconds_to_ns
from batching.core.events import Event, InstanceJoined
from batching.core.limits import Limits
from batching.core.policy import Policy
from batching.core.scheduler import Scheduler
from batching.simulation.arrivals import Load
from batching.simulation.kernel import Kernel
from batching.simulation.network import Network
from batching.simulation.observers import Observer
from batching.simulation.replica import Replica
from batching.simulation.routers import RoundRobin, Router
from batching.simulation.service import ServiceModel
from batching.simulation.streaming import Statistics, StreamingStatistics

_WARM_UP_SHARE = 0.1
_LIMITS = Limits(max_batch_rows=32)
_ROUTER = RoundRobin()


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """What serves a load, besides the policy and the time that batches take.

    Attributes:
        limits: Of each replica's queue.
        instances: Of each replica: how many, or what joins at time 0.
        changes: (time in s, event) for each replica: instances join, leave or change their cap.
        replicas: Independent schedulers, each with instances of its own.
        router: Which replica gets a request.
        network: Between callers and schedulers; None: nothing.
        enforce_deadlines: See `Scheduler`.
        preserve_ordering: See `Scheduler`.
        can_abort: See `Scheduler`.
    """

    limits: Limits = _LIMITS
    instances: int | Sequence[InstanceJoined] = 1
    changes: Sequence[tuple[float, Event]] = ()
    replicas: int = 1
    router: Router = _ROUTER
    network: Network | None = None
    enforce_deadlines: bool = True
    preserve_ordering: bool = False
    can_abort: bool = False

    def __post_init__(self) -> None:
        """Refuse a house in which nothing can be served."""
        if self.replicas < 1:
            raise ValueError(f"replicas must be at least 1, found {self.replicas}")

    def scheduler(self, policy: Policy) -> Scheduler:
        """A fresh one."""
        return Scheduler(
            policy,
            self.limits,
            enforce_deadlines=self.enforce_deadlines,
            preserve_ordering=self.preserve_ordering,
            can_abort=self.can_abort,
        )

    def events(self) -> Sequence[tuple[int, Event]]:
        """(time in ns, event) for each replica."""
        joining = self.instances
        if isinstance(joining, int):
            joining = [InstanceJoined(f"instance_{number}") for number in range(joining)]
        at_start = ((0, event) for event in joining)
        return list(chain(at_start, ((seconds_to_ns(at_s), event) for at_s, event in self.changes)))


@contextmanager
def _without_cycle_collector() -> Iterator[None]:
    """A simulation makes millions of objects and no cycles; looking for some would take a tenth of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def play(
    make_policy: Callable[[], Policy],
    load: Load,
    service: ServiceModel,
    house: House,
    *,
    observers: Sequence[Observer],
    duration_s: float | None = None,
    seed: int = 0,
) -> int:
    """Run a simulation that the given observers watch.

    Args:
        make_policy: A fresh policy for each replica.
        load: What comes.
        service: How long batches take.
        house: Everything else.
        observers: Who watches.
        duration_s: Length, or None: until everything has ended. Only for loads that end by themselves.
        seed: Equal seeds give equal simulations. Load, network, router and each replica's service have independent
            streams, so another policy meets the same requests.

    Returns:
        The time of the end in ns.
    """
    load_rng, wire_rng, router_rng, *service_rngs = np.random.default_rng(seed).spawn(3 + house.replicas)
    replicas = [
        Replica(house.scheduler(make_policy()), service.open(rng), number) for number, rng in enumerate(service_rngs)
    ]
    wire = None if house.network is None else house.network.open(wire_rng)
    choose = None if house.replicas == 1 else house.router.open(router_rng, house.replicas)
    kernel = Kernel(replicas, observers, wire, choose)
    for number in range(house.replicas):
        for at_ns, event in house.events():
            kernel.plan(at_ns, event, number)
    with _without_cycle_collector():
        return kernel.run(load.arrivals(load_rng), None if duration_s is None else seconds_to_ns(duration_s))


def simulate(
    make_policy: Callable[[], Policy],
    load: Load,
    service: ServiceModel,
    house: House = House(),
    *,
    duration_s: float | None = None,
    warm_up_s: float | None = None,
    seed: int = 0,
) -> Statistics:
    """Run a simulation and give its statistics, in constant memory. Arguments as in `play`.

    Args:
        make_policy: A fresh policy for each replica.
        load: What comes.
        service: How long batches take.
        house: Everything else.
        duration_s: Length, or None: until everything has ended.
        warm_up_s: What happens before is not counted; None: the first tenth of `duration_s`.
        seed: Equal seeds give equal statistics.
    """
    if warm_up_s is None:
        warm_up_s = _WARM_UP_SHARE * (duration_s or 0.0)
    statistics = StreamingStatistics(seconds_to_ns(warm_up_s), house.replicas)
    play(make_policy, load, service, house, observers=[statistics], duration_s=duration_s, seed=seed)
    return statistics.result()
