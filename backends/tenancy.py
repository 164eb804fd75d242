"""The instances of one site in a worker process: loaded into each new one, lost with the old one."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from backends.errors import BackendError, LoadError, WorkerLostError
from backends.members import SERVING, Member, MemberState, close_all, start_all
from backends.placing import Site
from backends.ports import Executor
from backends.process.remote_executor import RemoteExecutor
from backends.process.worker_process import WorkerProcess
from backends.supervision import Condition, Verdict
from backends.thread_host import ThreadInstance
from batching.clock import SECOND_NS, Clock, seconds_to_ns
from models.spec import ModelSpec

logger = logging.getLogger(__name__)

# Multiply torch's speed at large batches by up to four: without them every batch maps its memory anew (measured:
# 490,000 page faults a batch of 32 in the default settings, none with these).
MALLOC_SETTINGS = {
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20),
}


Lanes = Sequence[Sequence[RemoteExecutor]]


class Roster(Protocol):
    """Who wants to know which members serve: the pool."""

    def joined(self, member: Member) -> None:
        """A member gets batches from now on."""
        ...

    def left(self, member: Member) -> None:
        """A member gets no more batches."""
        ...


def create_instances(
    spec: ModelSpec,
    members: Sequence[Member],
    lanes: Sequence[Sequence[Executor]],
    clock: Clock,
    executed_rows: Sequence[int],
) -> Sequence[ThreadInstance]:
    """An instance that is not started for each member, with its lanes."""
    return [
        ThreadInstance(
            name=member.name,
            device=member.device,
            spec=spec,
            lanes=executors,
            clock=clock,
            allowed_rows=executed_rows,
        )
        for member, executors in zip(members, lanes, strict=True)
    ]


def environment(spec: ModelSpec, site: Site, visible: Mapping[int, str]) -> Mapping[str, str]:
    """What a worker process has in its environment beside the server's own.

    Args:
        spec: The model version; of several on one GPU, the first.
        site: Where it goes.
        visible: By ordinal of a GPU, the value of CUDA_VISIBLE_DEVICES that shows it alone.
    """
    values: dict[str, str] = {}
    if spec.backend == "pytorch":
        values |= MALLOC_SETTINGS
    if site.placement.is_gpu:
        ordinal = int(site.placement.device.removeprefix("gpu"))
        values |= {"CUDA_VISIBLE_DEVICES": visible.get(ordinal, str(ordinal)), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    else:
        values["OMP_NUM_THREADS"] = str(max(1, site.placement.cores // site.placement.instances))
    return values


class SiteTenant:
    """A `Tenant` of a `SupervisedWorker`.

    Args:
        spec: The model version.
        site: Where its instances are.
        members: One for each name of the site.
        clock: Stamps batches.
        executed_rows: Sizes that executors may see.
        warm_up_rows: Sizes to run before a member joins.
        roster: Is told who serves.
    """

    def __init__(
        self,
        spec: ModelSpec,
        site: Site,
        members: Sequence[Member],
        *,
        clock: Clock,
        executed_rows: Sequence[int],
        warm_up_rows: Sequence[int],
        roster: Roster,
    ) -> None:
        self._spec = spec
        self._site = site
        self._members = members
        self._clock = clock
        self._executed_rows = executed_rows
        self._warm_up_rows = warm_up_rows
        self._roster = roster
        self._is_loading = False
        self._process: WorkerProcess | None = None  # the one that it entered last
        self._lanes: Lanes = ()
        self._loading_lanes: Lanes = ()
        self._turn = asyncio.Lock()  # one of entering and renewing at a time
        self.entered: asyncio.Future[BackendError | None] = asyncio.get_running_loop().create_future()
        """Done when its first try to enter has ended; the error is a value, because nobody may wait for it."""

    @property
    def step_limit_ns(self) -> int:
        """How long what it does now may take."""
        rules = self._spec.execution
        return seconds_to_ns(rules.load_timeout_s if self._is_loading else rules.step_timeout_s)

    @property
    def step_limit_name(self) -> str:
        """What sets that."""
        return f"execution.{'load' if self._is_loading else 'step'}_timeout_s"

    @property
    def lanes(self) -> Iterable[RemoteExecutor]:
        """What it uses of the process, also what it is about to use."""
        return (executor for executors in (*self._lanes, *self._loading_lanes) for executor in executors)

    async def enter(self, process: WorkerProcess) -> None:
        """Load, warm up, join. Raises LoadError and WorkerLostError."""
        lost_ns = self._members[0].since_ns
        async with self._turn:
            if process is not self._process or not self._lanes:  # else it was renewed after a try that failed
                self.disconnect()
                self._process = process
                self._lanes, instances = await self._load(process)
                for member, instance in zip(self._members, instances, strict=True):
                    await self._seat(member, instance)
        if self.entered.done():
            away_s = (self._clock.now_ns() - lost_ns) / SECOND_NS
            logger.info(
                "model '%s': %s works again, after %.1f s", self._spec.name, ", ".join(self._site.names), away_s
            )
        self._enter_once(None)

    async def renew(self) -> None:
        """Load the model once more into the process and let the new instances take over, one after the other.

        For executors that are made differently now, such as when an engine has been built.

        Raises:
            LoadError: The model cannot be made ready; the old instances stay.
            WorkerLostError: The process ended meanwhile.
        """
        async with self._turn:
            process = self._process
            if process is None or process.has_ended:
                return  # the next one is entered in the new way
            lanes, instances = await self._load(process)
            old_lanes, self._lanes = self._lanes, lanes
            for member, instance in zip(self._members, instances, strict=True):
                if process is self._process and not process.has_ended:
                    await self._seat(member, instance)
                else:
                    await close_all([instance])
            _disconnect(old_lanes)

    async def _load(self, process: WorkerProcess) -> tuple[Lanes, Sequence[ThreadInstance]]:
        limit_s = self._spec.execution.load_timeout_s
        self._is_loading = True
        lanes: Lanes = ()
        try:
            async with asyncio.timeout(limit_s):  # the making is no step of a lane, so nobody else watches it
                self._loading_lanes = lanes = await process.assign(self._spec, self._site.placement)
            instances = create_instances(self._spec, self._members, lanes, self._clock, self._executed_rows)
            await start_all(instances, self._warm_up_rows)
        except TimeoutError:
            process.kill(f"making the executors took longer than {limit_s:g} s")
            await process.wait_ended()
            text = f"worker '{process.name}' was ended: making executors took longer than {limit_s:g} s"
            raise WorkerLostError(text) from None
        except BaseException:
            _disconnect(lanes)  # or the worker keeps them, and this process its ends
            raise
        finally:
            self._is_loading = False
            self._loading_lanes = ()
        return lanes, instances

    async def _seat(self, member: Member, instance: ThreadInstance) -> None:
        """Let it take over from the one before, which ends what it has."""
        if member.state is MemberState.CLOSED:
            await close_all([instance])
            return
        if member.is_serving:
            self._roster.left(member)  # the new one may have another number of lanes
        old = member.unseat()
        member.seat(instance)
        self._roster.joined(member)
        if old is not None:
            await close_all([old])

    def refused(self, error: BackendError) -> None:
        """It could not enter."""
        is_failed = isinstance(error, LoadError)
        for member in self._members:
            if member.state is not MemberState.CLOSED:
                member.turn(MemberState.FAILED if is_failed else MemberState.RESTARTING, str(error))
        if self.entered.done():
            level = logging.ERROR if is_failed else logging.INFO
            logger.log(level, "instance %s could not be made ready again: %s", self._site.names[0], error)
            for member in self._members if is_failed else ():
                self._roster.left(member)  # so that nobody waits for it
        self._enter_once(error)

    def lost(self, reason: str, *, is_failed: bool) -> None:
        """The worker has ended."""
        state = MemberState.FAILED if is_failed else MemberState.RESTARTING
        for member in self._members:
            if member.state is MemberState.CLOSED:
                continue
            was_serving = member.is_serving
            member.restarts += 1
            member.turn(state, reason)
            instance = member.unseat()
            if instance is not None:
                instance.stop_nowait()
            if was_serving or is_failed:
                self._roster.left(member)
        self._enter_once(WorkerLostError(f"worker process of model '{self._spec.name}' {reason}"))

    def show(self, verdict: Verdict) -> None:
        """How the worker is."""
        is_well = verdict.condition is Condition.WELL
        for member in self._members:
            if member.state in SERVING:
                member.turn(MemberState.READY if is_well else MemberState.STALLED, verdict.reason)

    def disconnect(self) -> None:
        """Free what its executors hold in a process that stays; they are closed."""
        lanes, self._lanes = self._lanes, ()
        _disconnect(lanes)

    def _enter_once(self, outcome: BackendError | None) -> None:
        if not self.entered.done():
            self.entered.set_result(outcome)


def _disconnect(lanes: Lanes) -> None:
    for executors in lanes:
        for executor in executors:
            executor.disconnect()
