"""Triton's rate limiter: models take turns at resources that they need while a batch of them runs.

`instance_group.rate_limiter` says what a batch needs and how the model's turns are weighted; `--rate-limit-resource`
says how much there is. What no flag names exists as often as the most demanding model on a device needs it. Models
that need nothing are not touched. Differences from Triton, each on purpose:

- All instance groups of a model must agree: they share one queue, and it is the queue that takes turns.
- A batch takes what it needs, not an instance: one that overlaps copies with computing holds it twice, or waits.
- Triton counts the CPU as device 0; here it has resources of its own, and a flag for device 0 speaks of both.
- There, as soon as one flag is given, resources without a flag do not exist, and models that need them do not load.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple

from batching.clock import Clock
from batching.core.arbiter import RateLimiter, Resources
from batching.core.scheduler import Scheduler
from batching.sharing import Seat, SharedSchedulers
from models.errors import ConfigError
from models.spec import ModelSpec, Resource

_log = logging.getLogger(__name__)


class ResourceLimit(NamedTuple):
    """How much there is of a resource.

    Attributes:
        name: Of the resource.
        amount: How much.
        device: The number of the only device that has it; None: every device, or none in particular.
    """

    name: str
    amount: int
    device: int | None = None


def parse_resource_limit(text: str) -> ResourceLimit:
    """A value of `--rate-limit-resource`. Raises ValueError with a sentence."""
    name, *numbers = text.split(":")
    if not name or not 1 <= len(numbers) <= 2 or not all(word.isascii() and word.isdigit() for word in numbers):
        raise ValueError(
            f"found {text!r}, expected <name>:<count> or <name>:<count>:<device>, e.g. memory:4 or slots:2:0"
        )
    return ResourceLimit(name, *map(int, numbers))


class _Member(NamedTuple):
    """A model that takes part."""

    spec: ModelSpec
    devices: frozenset[str]


class RateLimit:
    """The rate limiter of a server; there is none with `--rate-limit=off`. Belongs to one event loop.

    Args:
        limits: What the flags say, several for one resource allowed: the largest that applies counts.
        clock: That of the runners.
    """

    def __init__(self, limits: Sequence[ResourceLimit], clock: Clock) -> None:
        self._limits = tuple(limits)
        self._priorities = RateLimiter()
        self._resources = Resources()
        self._shared = SharedSchedulers(self._priorities, self._resources, clock)
        self._members: dict[str, _Member] = {}
        self._serial = count(1)

    def check(self, spec: ModelSpec, devices: Sequence[str] = ()) -> None:
        """Find mistakes before the model is loaded, and those that depend on its devices once it is.

        Raises:
            ConfigError: Groups differ, a resource is global here and not there, or more is needed than there is.
        """
        if _takes_part(spec):
            _check_groups(spec)
            for place, resource in enumerate(spec.instance_groups[0].resources):
                field = f"instance_group[0].rate_limiter.resources[{place}]"
                self._check_kind(spec, resource, field)
                self._check_amount(spec, resource, field, devices)

    @contextmanager
    def share(self, spec: ModelSpec, scheduler: Scheduler, devices: Sequence[str]) -> Iterator[Scheduler | Seat]:
        """Let a loaded version take part during the block; gives what its runner is to drive instead of the scheduler.

        Within the block its runner runs and ends, and then its executors are closed.

        Args:
            spec: The version.
            scheduler: Fresh.
            devices: Of its instances, e.g. ``gpu0``.

        Raises:
            ConfigError: As `check`.
        """
        if not _takes_part(spec):
            yield scheduler
            return
        self.check(spec, devices)
        name = f"{spec.name}:{spec.version} ({next(self._serial)})"  # while it is reloaded, a version is here twice
        self._members[name] = _Member(spec, frozenset(devices))
        self._priorities.set_priority(name, max(1, spec.instance_groups[0].priority))
        self._define()
        seat = self._shared.add(name, scheduler)
        _log.info("rate limiter", extra={"fields": {"model": spec.name, "version": spec.version, **_shown(spec)}})
        try:
            yield seat
        finally:
            self._shared.remove(name)
            del self._members[name]
            self._define()

    def _define(self) -> None:
        """Say anew how much there is, for the models that are here."""
        shared: dict[str, int] = {}
        on_device: dict[tuple[str, str], int] = {}
        anywhere: dict[str, int] = {}  # on devices where nobody was when the models came
        for spec, devices in self._members.values():
            for resource in spec.instance_groups[0].resources:
                name, most = resource.name, self._amount(resource, None)
                where = shared if resource.shared else anywhere
                where[name] = max(where.get(name, 0), most)
                for device in () if resource.shared else devices:
                    on_device[name, device] = max(on_device.get((name, device), 0), self._amount(resource, device))
        needs = {name: _needs(member.spec) for name, member in self._members.items()}
        self._resources.define(needs, per_device=anywhere, shared=shared, on_device=on_device)

    def _amount(self, resource: Resource, device: str | None) -> int:
        """How much there is on a device, or on the one that has most, as far as the flags and this need say."""
        limits = [limit for limit in self._limits if limit.name == resource.name]
        if not limits:
            return resource.count
        if device is not None and not resource.shared:
            limits = [limit for limit in limits if limit.device in (None, _number(device))]
        return max((limit.amount for limit in limits), default=0)

    def _check_kind(self, spec: ModelSpec, resource: Resource, field: str) -> None:
        for other in self._members.values():
            for theirs in other.spec.instance_groups[0].resources:
                if theirs.name == resource.name and theirs.shared != resource.shared:
                    raise ConfigError(
                        source=_source(spec),
                        field=f"{field}.global",
                        found=f"{str(resource.shared).lower()} for resource '{resource.name}'",
                        expected=f"{str(theirs.shared).lower()}, as in model '{other.spec.name}'",
                    )

    def _check_amount(self, spec: ModelSpec, resource: Resource, field: str, devices: Sequence[str]) -> None:
        for device in devices or (None,):
            most = self._amount(resource, device)
            if resource.count > most:
                where = "" if device is None or resource.shared else f" on {device}"
                raise ConfigError(
                    source=_source(spec),
                    field=f"{field}.count",
                    found=f"{resource.count} of resource '{resource.name}'",
                    expected=f"at most {most}, all there is{where}; ask for less, or start with "
                    f"--rate-limit-resource={resource.name}:{resource.count}",
                )


def rate_limit_notes(
    specs: Sequence[ModelSpec], limits: Sequence[ResourceLimit], rate_limit: RateLimit | None
) -> Iterator[str]:
    """What is asked for and has no effect, in sentences."""
    asking = [spec for spec in specs if _takes_part(spec)]
    if rate_limit is None:
        if limits:
            yield "--rate-limit-resource has no effect without --rate-limit=execution_count"
        for spec in asking:
            yield f"model '{spec.name}': rate_limiter has no effect without --rate-limit=execution_count"
        return
    asked = sorted({name for spec in asking for group in spec.instance_groups for name in _needs_of(group.resources)})
    for name in dict.fromkeys(limit.name for limit in limits if limit.name not in asked):
        yield f"no model asks for resource '{name}' of --rate-limit-resource; asked for: {', '.join(asked) or 'none'}"


def _takes_part(spec: ModelSpec) -> bool:
    return any(_needs_of(group.resources) for group in spec.instance_groups)


def _check_groups(spec: ModelSpec) -> None:
    first = spec.instance_groups[0]
    names = [resource.name for resource in first.resources]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(
            source=_source(spec),
            field="instance_group[0].rate_limiter.resources",
            found=f"resource '{twice}' twice",
            expected="each resource once",
        )
    for place, group in enumerate(spec.instance_groups):
        if set(group.resources) != set(first.resources) or max(1, group.priority) != max(1, first.priority):
            raise ConfigError(
                source=_source(spec),
                field=f"instance_group[{place}].rate_limiter",
                found="other resources or another priority than in instance_group[0]",
                expected="the same in all groups: it is the model's queue that takes turns, and the groups share it",
            )


def _needs(spec: ModelSpec) -> dict[str, int]:
    return _needs_of(spec.instance_groups[0].resources)


def _needs_of(resources: Sequence[Resource]) -> dict[str, int]:
    return {resource.name: resource.count for resource in resources if resource.count}


def _number(device: str) -> int:
    """As Triton counts: the CPU is device 0."""
    digits = device.removeprefix("gpu")
    return int(digits) if digits.isdecimal() else 0


def _source(spec: ModelSpec) -> str:
    return f"{spec.name}/config.pbtxt"


def _shown(spec: ModelSpec) -> dict[str, object]:
    group = spec.instance_groups[0]
    needs = ", ".join(f"{resource.name}:{resource.count}" for resource in group.resources)
    return {"needs": needs, "priority": max(1, group.priority)}
