"""Live models that share devices or resources: one `SharedDevices` behind the runners of several models.

Every runner drives a `Seat` in place of its scheduler. Whatever happens to one model is told to all in one turn of the
loop: what the other runners have noted until then is handed over together with it, and what they must do is done at
once. So the schedulers see what they would see in a simulation, and no runner knows of the others.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from batching.clock import Clock
from batching.core.arbiter import Arbiter, Resources
from batching.core.commands import Command
from batching.core.events import Event
from batching.core.scheduler import Scheduler
from batching.core.shared_devices import SharedDevices


class Driver(Protocol):
    """What a runner is to those that it shares with."""

    def pop_events(self) -> Sequence[Event]:
        """What has happened to its model since the last call."""
        ...

    def follow(self, commands: Sequence[Command]) -> None:
        """Do this, and look when the scheduler wants to be woken. Never raises."""
        ...

    def fail(self, error: Exception) -> None:
        """The model's policy broke a law; end."""
        ...


class SharedSchedulers:
    """Schedulers of models that take turns. Belongs to one event loop; starts nothing.

    Args:
        arbiter: Whose turn it is.
        resources: What batches need. Their owner may `define` them anew whenever models come or go.
        clock: That of the runners.
    """

    def __init__(self, arbiter: Arbiter, resources: Resources, clock: Clock) -> None:
        self._devices = SharedDevices({}, arbiter, resources)
        self._clock = clock
        self._seats: dict[str, Seat] = {}

    def add(self, name: str, scheduler: Scheduler) -> "Seat":
        """A place for another model, for its runner. Raises ValueError if one of this name is here.

        Args:
            name: Unique among those that share.
            scheduler: Fresh; only the seat is to be used from now on.
        """
        guarded = _Guarded(scheduler)
        self._devices.add(name, guarded)
        seat = self._seats[name] = Seat(name, scheduler, guarded, self)
        return seat

    def remove(self, name: str) -> None:
        """Forget a model whose runner has ended, or never ran, and whose batches are no longer in any executor.

        Until then what those batches need stays taken; a runner that is cancelled leaves them to the executors.

        Raises:
            KeyError: There is no such model.
            RuntimeError: Its runner runs.
        """
        if self._seats[name].driver is not None:
            raise RuntimeError(f"model '{name}' cannot be removed while its runner runs")
        del self._seats[name]
        self._devices.remove(name)
        self.settle()

    def leave(self, name: str) -> None:
        """For `Seat`: a model gets no more turns."""
        self._devices.leave(name)
        self.settle()

    def settle(self) -> None:
        """Let the models start what they can now; needed after `Resources.define` has made more of something."""
        self.turn(None, (), self._clock.now_ns())

    def turn(self, name: str | None, events: Sequence[Event], now_ns: int) -> list[Command]:
        """For `Seat`: tell what happened to one model, or none, and to all others; returns what its runner must do."""
        others = {
            other: driver
            for other, seat in self._seats.items()
            if other != name and (driver := seat.driver) is not None
        }
        happened = {other: driver.pop_events() for other, driver in others.items()}
        if name is not None:
            happened[name] = events
        commands = self._devices.handle(happened, now_ns)
        for other, driver in others.items():
            error = self._seats[other].error
            if error is None:
                driver.follow(commands.get(other, ()))
            else:
                driver.fail(error)
        return [] if name is None else commands.get(name, [])


class Seat:
    """A model's scheduler among others, for `batching.runner.Runner`. Made by `SharedSchedulers.add`.

    Attributes:
        driver: The runner while it runs.
    """

    def __init__(self, name: str, scheduler: Scheduler, guarded: "_Guarded", shared: SharedSchedulers) -> None:
        self.driver: Driver | None = None
        self.reserve = scheduler.reserve
        self.close = scheduler.close
        self.statistics = scheduler.statistics
        self._name = name
        self._scheduler = scheduler
        self._guarded = guarded
        self._shared = shared

    @property
    def wake_at_ns(self) -> int | None:
        """As of `Scheduler`."""
        return self._guarded.wake_at_ns

    @property
    def is_closed(self) -> bool:
        """As of `Scheduler`."""
        return self._scheduler.is_closed

    @property
    def is_empty(self) -> bool:
        """As of `Scheduler`."""
        return self._scheduler.is_empty

    @property
    def preserves_ordering(self) -> bool:
        """As of `Scheduler`."""
        return self._scheduler.preserves_ordering

    @property
    def error(self) -> Exception | None:
        """What the scheduler or its policy raised; nothing more is asked of it then."""
        return self._guarded.error

    def handle(self, events: Sequence[Event], now_ns: int) -> list[Command]:
        """As of `Scheduler`; the other models are told and served in the same turn."""
        commands = self._shared.turn(self._name, events, now_ns)
        if self.error is not None:
            raise self.error
        return commands

    @contextmanager
    def driven_by(self, driver: Driver) -> Iterator[None]:
        """Take part during the block, once."""
        self.driver = driver
        try:
            yield
        finally:
            self.driver = None
            self._shared.leave(self._name)


@contextmanager
def seated(scheduler: Scheduler | Seat, driver: Driver) -> Iterator[None]:
    """Take part in the turns of others during the block, if the scheduler shares anything with them."""
    if isinstance(scheduler, Seat):
        with scheduler.driven_by(driver):
            yield
    else:
        yield


class _Guarded:
    """A scheduler whose error ends its own runner and no other: from then on it does nothing."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.error: Exception | None = None
        self.share = scheduler.share
        self._scheduler = scheduler

    @property
    def wake_at_ns(self) -> int | None:
        return None if self.error else self._scheduler.wake_at_ns

    def handle(self, events: Sequence[Event], now_ns: int) -> list[Command]:
        return self._ask(lambda: self._scheduler.handle(events, now_ns))

    def offer(self, now_ns: int) -> list[Command]:
        return self._ask(lambda: self._scheduler.offer(now_ns))

    def _ask(self, ask: Callable[[], list[Command]]) -> list[Command]:
        if self.error is not None:
            return []
        try:
            return ask()
        except Exception as error:  # noqa: BLE001 - raised again by the runner that it belongs to
            self.error = error
            return []
