"""Worker processes that are replaced when they die or hang.

Main path: `SupervisedWorker.run` starts a process, lets its tenants load their models into it, watches it until it
ends, tells the tenants, waits as the `RestartBudget` says, and begins again.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Protocol, Self

from backends.errors import BackendError, LoadError, WorkerLostError
from backends.process.remote_executor import RemoteExecutor
from backends.process.worker_process import WorkerProcess
from backends.supervision import MUTE_NS, Condition, RestartBudget, RestartRules, Signs, Verdict, judge
from batching.clock import SECOND_NS, Clock

logger = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.25
_LATE_NS = SECOND_NS
_GRACE_S = 2.0
_START_S = 30.0
_SEVERITY = {condition: rank for rank, condition in enumerate(Condition)}

CreateProcess = Callable[[], WorkerProcess]


class Tenant(Protocol):
    """The instances of one model version in a worker process."""

    @property
    def step_limit_ns(self) -> int:
        """How long what it does now may take."""
        ...

    @property
    def step_limit_name(self) -> str:
        """What sets that."""
        ...

    @property
    def lanes(self) -> Iterable[RemoteExecutor]:
        """What it uses of the process."""
        ...

    async def enter(self, process: WorkerProcess) -> None:
        """Load the model into a fresh process and take part in serving.

        Raises:
            LoadError: The model cannot be made ready.
            WorkerLostError: The process ended meanwhile.
        """
        ...

    def refused(self, error: BackendError) -> None:
        """It could not enter; it will be asked again."""
        ...

    def lost(self, reason: str, *, is_failed: bool) -> None:
        """The process has ended. Unless the worker counts as failed, a new one follows soon."""
        ...

    def show(self, verdict: Verdict) -> None:
        """How the process is, several times a second."""
        ...


class SupervisedWorker:
    """One worker process after the other, for the same tenants.

    Args:
        name: For messages.
        create: Makes the next process, not started.
        rules: For replacing it.
        clock: The system's monotonic clock, by which the worker beats too.
    """

    def __init__(self, name: str, create: CreateProcess, rules: RestartRules, clock: Clock) -> None:
        self.name = name
        self.tenants: dict[Tenant, None] = {}
        self._create = create
        self._clock = clock
        self._rules = rules
        self._budget = RestartBudget(rules)
        self._process: WorkerProcess | None = None  # started, and not known to have ended
        self._loading = 0  # tenants that are about to enter
        self._entering: asyncio.TaskGroup | None = None

    @property
    def pid(self) -> int:
        """Of the process, or 0."""
        return self._process.pid if self._process is not None else 0

    def add(self, tenant: Tenant) -> None:
        """A tenant enters now, if there is a process, and each later one."""
        self.tenants[tenant] = None
        if self._process is not None and self._entering is not None:
            self._entering.create_task(self._let_in(tenant, self._process))

    def tighten(self, rules: RestartRules) -> None:
        """Another tenant has rules of its own: the strictest holds."""
        limits = [limit for limit in (self._rules.max_restarts, rules.max_restarts) if limit >= 0]
        self._rules = replace(self._rules, max_restarts=min(limits, default=-1))
        self._budget.rules = self._rules

    def fence(self, reason: str) -> None:
        """End the process at once, because it cannot work any more; a new one follows."""
        if self._process is not None:
            self._process.kill(reason)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                reason = await self._live()
            except Exception as error:  # a defect of ours takes one worker, not the server
                logger.exception("worker %s failed", self.name)
                reason = f"failed: {type(error).__name__}"
            restart = self._budget.died(self._clock.now_ns())
            self._log_end(reason, restart.delay_ns, is_failed=restart.is_failed)
            for tenant in tuple(self.tenants):
                tenant.lost(reason, is_failed=restart.is_failed)
            await asyncio.sleep(restart.delay_ns / SECOND_NS)

    async def _live(self) -> str:
        """The life of one process; returns why it ended."""
        process = self._create()
        try:
            async with asyncio.timeout(_START_S):
                await process.start()
            return await self._serve(process)
        except TimeoutError:
            return f"did not start within {_START_S:g} s"
        except BackendError as error:
            return f"could not be started: {error}"
        finally:
            self._process = None
            await process.aclose(grace_s=_GRACE_S)

    async def _serve(self, process: WorkerProcess) -> str:
        """From its start to its end; returns why it ended."""
        self._process = process
        async with asyncio.TaskGroup() as self._entering:
            for tenant in tuple(self.tenants):
                self._entering.create_task(self._let_in(tenant, process))
            try:
                reason = await self._watch(process)
            except asyncio.CancelledError:
                if self._loading:  # which nobody can interrupt, and nobody needs any more
                    process.kill("it is not needed any more")
                raise
            self._process = None  # from here on nobody enters
        return reason

    async def _let_in(self, tenant: Tenant, process: WorkerProcess) -> None:
        while tenant in self.tenants and not process.has_ended:
            error = await self._enter(tenant, process)
            if error is None:
                return
            tenant.refused(error)
            if isinstance(error, WorkerLostError):
                process.kill(str(error))  # if it has not ended anyway: it cannot be talked to
                await process.wait_ended()
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._rules.retry_ns / SECOND_NS):
                        await process.wait_ended()

    async def _enter(self, tenant: Tenant, process: WorkerProcess) -> WorkerLostError | LoadError | None:
        self._loading += 1
        try:
            await tenant.enter(process)
        except (WorkerLostError, LoadError) as error:
            return error
        finally:
            self._loading -= 1
        return None

    async def _watch(self, process: WorkerProcess) -> str:
        """Look at it until it ends, and end it if it hangs."""
        looked_ns = self._clock.now_ns()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    return await process.wait_ended()
            now_ns = self._clock.now_ns()
            # If this loop itself stood still, the worker may not have been able to beat either.
            verdict = self._judge(process, now_ns) if now_ns - looked_ns < _LATE_NS else None
            looked_ns = now_ns
            if verdict is not None and verdict.condition is Condition.HUNG:
                if verdict.blames_batch:
                    await process.show_stacks()
                process.kill(verdict.reason, blames_batch=verdict.blames_batch)
                return await process.wait_ended()

    def _judge(self, process: WorkerProcess, now_ns: int) -> Verdict:
        """Each tenant by its own lanes and limit; the worst that is found holds for the process."""
        pulse = process.pulse()
        # Any lane's step may hold the interpreter's lock: until it ends, none of the tenants is mute.
        heartbeat_ns = max(pulse.heartbeat_ns, now_ns - MUTE_NS) if any(pulse.steps.values()) else pulse.heartbeat_ns
        worst = judge(Signs(heartbeat_ns, 0, pulse.is_stopped), 0, now_ns)
        for tenant in tuple(self.tenants):
            started_ns = min((since for lane in tenant.lanes if (since := pulse.steps.get(lane, 0))), default=0)
            signs = Signs(heartbeat_ns, started_ns, pulse.is_stopped)
            verdict = judge(signs, tenant.step_limit_ns, now_ns, tenant.step_limit_name)
            tenant.show(verdict)
            worst = max(worst, verdict, key=lambda each: _SEVERITY[each.condition])
        return worst

    def _log_end(self, reason: str, delay_ns: int, *, is_failed: bool) -> None:
        what_next = f"a new one is started in {delay_ns / SECOND_NS:g} s" if delay_ns else "a new one is started"
        if is_failed:
            logger.error("worker %s %s: too often, it counts as failed; %s", self.name, reason, what_next)
        else:
            logger.warning("worker %s %s; %s", self.name, reason, what_next)


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        logger.exception("a task beside the workers failed")


class WorkerHouse:
    """All worker processes of a server; an async context manager that owns their tasks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._workers: dict[str, tuple[SupervisedWorker, asyncio.Task[None]]] = {}
        self._beside: set[asyncio.Task[None]] = set()
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for task in (*self._beside, *(task for _, task in self._workers.values())):
            task.cancel()
        if not isinstance(error, asyncio.CancelledError):  # the body's own error leaves as it is, not in a group
            kind = error = traceback = None
        await self._tasks.__aexit__(kind, error, traceback)

    def enter(self, key: str, tenant: Tenant, environment: Mapping[str, str], rules: RestartRules) -> SupervisedWorker:
        """A tenant moves into the worker with this key, which is started if there is none."""
        if key not in self._workers:
            clock = self._clock
            worker = SupervisedWorker(
                key, lambda: WorkerProcess(key, clock=clock, environment=environment), rules, clock
            )
            self._workers[key] = worker, self._tasks.create_task(worker.run())
        worker, _ = self._workers[key]
        worker.tighten(rules)
        worker.add(tenant)
        return worker

    def run_beside(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Start a task of the house; whoever started it cancels it, or the end of the house does.

        What it raises is logged: the server goes on without its result.
        """
        task = self._tasks.create_task(_logged(work))
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        return task

    def leave(self, key: str, tenant: Tenant) -> "asyncio.Task[None] | None":
        """A tenant moves out; the worker of the last one ends. Returns the task whose end says that it has."""
        worker, task = self._workers[key]
        worker.tenants.pop(tenant, None)
        if worker.tenants:
            return None
        del self._workers[key]
        task.cancel()
        return task
