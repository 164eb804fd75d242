"""The instances of one model version: made from its instance groups, started together, replaced when they die."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from backends.cpu_split import with_measured_split
from backends.engine_builds import build_and_renew
from backends.errors import BackendError, DeviceFaultError, LoadError, NoInstanceError
from backends.members import Member, MemberState, MemberStatus, all_or_error, close_all, start_all
from backends.placing import Machine, Site, place, warn
from backends.ports import ExecutorFactory
from backends.registry import Hosting, create_executors, find_backend
from backends.sizes import executed_sizes, warm_up_sizes
from backends.supervision import RestartRules
from backends.tenancy import SiteTenant, create_instances, environment
from backends.workers import SupervisedWorker, WorkerHouse
from batching.clock import Clock
from batching.ports import Instance
from models.inference import Tensors
from models.spec import ModelSpec

logger = logging.getLogger(__name__)

_CLOSE_S = 5.0
_FAILED = MemberState.FAILED  # Python 3.11 takes ten times as long to find a member through its class


class Listener(Protocol):
    """Who gives batches to the members: a `Runner`."""

    def join(self, instance: Instance[Tensors, Tensors]) -> None:
        """It takes batches from now on."""
        ...

    def leave(self, name: str) -> None:
        """It takes no more batches."""
        ...

    def abandon(self, error: Exception) -> None:
        """Nothing that waits can be served."""
        ...


class InstancePool:
    """Owns a model version's instances. It does not dispatch: which one takes a batch is the scheduler's choice.

    Args:
        spec: The model version.
        clock: Stamps the batches.
        machine: What instances can be placed on.
        workers: For instances in worker processes.
        factory: Makes the executors of those in threads of this process.
    """

    def __init__(
        self,
        spec: ModelSpec,
        *,
        clock: Clock,
        machine: Machine,
        workers: WorkerHouse,
        factory: ExecutorFactory = create_executors,
    ) -> None:
        self._spec = spec
        self._clock = clock
        self._machine = machine
        self._workers = workers
        self._factory = factory
        self._members: dict[str, Member] = {}
        self._sites: dict[str, Site] = {}  # by member
        self._tenants: dict[str, SiteTenant] = {}  # by key of the worker process
        self._supervisors: dict[str, SupervisedWorker] = {}  # likewise
        self._builds: list[asyncio.Task[None]] = []
        self._listener: Listener | None = None
        self._turned: asyncio.Future[None] | None = None  # done when a member changes its state

    @property
    def instances(self) -> Sequence[Member]:
        """All members in the order of the groups, serving or not; empty before `start` and after `aclose`."""
        return list(self._members.values())

    @property
    def is_available(self) -> bool:
        """Whether a batch could run now."""
        return any(member.is_serving for member in self._members.values())

    async def start(self) -> None:
        """Load and warm up all instances, at the same time: all of them become ready, or none is left behind.

        Raises:
            LoadError: One cannot be made ready, a group asks for a GPU that is not there, or the backend is unknown.
        """
        self._spec, self._machine = await with_measured_split(self._spec, self._machine, self._factory, self._clock)
        sites = place(self._spec, self._machine)
        warn(self._spec, sites)
        for site in sites:
            for name in site.names:
                self._members[name] = self._member(name, site)
                self._sites[name] = site
        try:
            await all_or_error(self._start(site) for site in sites)
        except BaseException:
            await self.aclose()
            raise

    def attach(self, listener: Listener) -> None:
        """Tell who serves, now and later."""
        self._listener = listener
        for member in self._members.values():
            if member.is_serving:
                listener.join(member)

    async def renew(self) -> None:
        """Load the models in worker processes once more, and let the new instances take over, one after the other.

        Raises:
            BackendError: One could not be loaded; its old instance stays.
        """
        for tenant in self._tenants.values():
            await tenant.renew()

    def check(self) -> None:
        """Raise NoInstanceError if no member works, nor is about to."""
        if self._is_hopeless:
            raise self._no_instance()

    async def wait_until(self, condition: Callable[[Sequence[MemberStatus]], bool]) -> None:
        """Return as soon as the condition holds of `statuses`; looked at whenever a member changes its state."""
        while not condition(self.statuses()):
            self._turned = self._turned or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._turned)

    def statuses(self) -> Sequence[MemberStatus]:
        """A snapshot of each member, in the order of `instances`."""
        return [member.status(self._pid(name)) for name, member in self._members.items()]

    async def aclose(self) -> None:
        """Close all instances; returns when their running batches are done, in workers after five seconds at most.

        Safe to call twice.
        """
        for build in self._builds:
            build.cancel()
        members, self._members = self._members, {}
        tenants, self._tenants = self._tenants, {}
        instances = []
        for member in members.values():
            member.turn(MemberState.CLOSED)
            if (instance := member.unseat()) is not None:
                instances.append(instance)
        try:
            # What still runs after that is heard by nobody: callers have been answered before a pool is closed.
            async with asyncio.timeout(_CLOSE_S if tenants else None):
                await close_all(instances)
        except TimeoutError:
            where = f"model '{self._spec.name}' version {self._spec.version}"
            logger.warning("%s: a batch is still running after %g s and is given up", where, _CLOSE_S)
        finally:  # also if this is cancelled
            ending = [self._move_out(key, tenant) for key, tenant in tenants.items()]
        if tasks := [task for task in ending if task is not None]:
            await asyncio.wait(tasks)
        await close_all(instances)

    def _move_out(self, key: str, tenant: SiteTenant) -> "asyncio.Task[None] | None":
        tenant.disconnect()
        return self._workers.leave(key, tenant)

    # For tenants

    def joined(self, member: Member) -> None:
        """A member gets batches from now on."""
        if self._listener is not None:
            self._listener.join(member)

    def left(self, member: Member) -> None:
        """A member gets no more batches."""
        if self._listener is None:
            return
        self._listener.leave(member.name)
        if self._is_hopeless:
            self._listener.abandon(self._no_instance())

    # Starting

    async def _start(self, site: Site) -> None:
        members = [self._members[name] for name in site.names]
        if site.hosting is Hosting.THREAD:
            await self._start_threads(site, members)
        else:
            await self._start_process(site, members)

    async def _start_threads(self, site: Site, members: Sequence[Member]) -> None:
        # In a thread, because the first model of a backend imports its engine while the loop serves the others.
        lanes = await asyncio.to_thread(self._factory, self._spec, site.placement)
        instances = create_instances(self._spec, members, lanes, self._clock, self._executed_rows(site))
        await start_all(instances, self._warm_up_rows(site))
        for member, instance in zip(members, instances, strict=True):
            member.seat(instance)

    async def _start_process(self, site: Site, members: Sequence[Member]) -> None:
        tenant = SiteTenant(
            self._spec,
            site,
            members,
            clock=self._clock,
            executed_rows=self._executed_rows(site),
            warm_up_rows=self._warm_up_rows(site),
            roster=self,
        )
        variables = environment(self._spec, site, self._machine.gpus)
        self._tenants[site.process] = tenant
        self._supervisors[site.process] = self._workers.enter(
            site.process,
            tenant,
            variables,
            RestartRules(max_restarts=self._spec.execution.max_restarts),
        )
        failure = await tenant.entered
        if isinstance(failure, LoadError):
            raise failure
        if failure is not None:
            raise LoadError(f"model '{self._spec.name}' version {self._spec.version}: {failure}") from failure
        if self._spec.backend == "tensorrt":
            self._builds.append(self._workers.run_beside(build_and_renew(self._spec, site, tenant, variables)))

    def _executed_rows(self, site: Site) -> Sequence[int]:
        is_costly = find_backend(self._spec).has_costly_sizes
        return executed_sizes(self._spec, is_costly=is_costly, is_gpu=site.placement.is_gpu)

    def _warm_up_rows(self, site: Site) -> Sequence[int]:
        return warm_up_sizes(self._spec, self._executed_rows(site), is_gpu=site.placement.is_gpu)

    # Members

    def _member(self, name: str, site: Site) -> Member:
        return Member(
            name=name,
            device=site.placement.device,
            clock=self._clock,
            substitute=self._substitute,
            on_broken=lambda error: self._on_broken(site, error),
            on_turn=self._on_turn,
        )

    def _on_turn(self) -> None:
        turned, self._turned = self._turned, None
        if turned is not None and not turned.done():
            turned.set_result(None)

    def _substitute(self, lost: Member) -> Member | None:
        """The least loaded serving member in another worker process."""
        process = self._sites[lost.name].process
        others = [
            member
            for name, member in self._members.items()
            if member is not lost and member.is_serving and self._sites[name].process != process
        ]
        return min(others, key=lambda member: member.open_batches / member.max_in_flight, default=None)

    def _on_broken(self, site: Site, error: BackendError) -> None:
        """A worker is lost, or has to be: its members get no more batches, though its end is noticed a moment later."""
        supervisor = self._supervisors.get(site.process)
        if supervisor is None:
            return  # what lives in this process cannot be replaced
        if isinstance(error, DeviceFaultError):
            supervisor.fence(f"its device is broken: {error}")
        for member in map(self._members.get, site.names):
            if member is not None and member.is_serving:
                member.turn(MemberState.RESTARTING, str(error))
                self.left(member)

    def _pid(self, name: str) -> int:
        """Of a member's worker, or 0."""
        supervisor = self._supervisors.get(self._sites[name].process)
        return supervisor.pid if supervisor is not None else 0

    @property
    def _is_hopeless(self) -> bool:
        for member in self._members.values():  # asked for each request: nearly always the first one works
            if member.state is not _FAILED:
                return False
        return bool(self._members)

    def _no_instance(self) -> NoInstanceError:
        where = f"model '{self._spec.name}' version {self._spec.version}"
        failed = [member for member in self._members.values() if member.reason]
        why = f"; instance '{failed[0].name}' {failed[0].reason}" if failed else ""
        return NoInstanceError(f"{where}: no instance works{why}; it is tried again within a minute")
