"""The live driver: asyncio, a real clock, one `Scheduler`.

A request goes `reserve` -> (decode) -> `execute`. Events are collected for one turn of the loop and handed to the
scheduler together: what arrives in the same turn is seen together, and a busy server pays for one look per turn.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Generic, TypeVar, Unpack

from batching.alarm import Alarm
from batching.callers import Answer, BatchReport, Caller, Members, Promise, Splitting
from batching.clock import Clock
from batching.core.commands import Abort, Command, Expire, Refuse, Release, Start
from batching.core.errors import DeadlineExceededError, PolicyError, ShuttingDownError, refusal_error
from batching.core.events import (
    Arrived,
    BatchDone,
    Event,
    InstanceFree,
    InstanceJoined,
    InstanceLeft,
    Timer,
    Withdrawn,
)
from batching.core.scheduler import Scheduler
from batching.core.statistics import SchedulerStatistics
from batching.ports import BatchResult, Instance
from batching.reservations import How, Reservation
from batching.sharing import Seat, seated
from batching.submissions import Deliver, Submission

Payload = TypeVar("Payload")
Result = TypeVar("Result")
Prepared = TypeVar("Prepared")


class Runner(Generic[Payload, Result]):
    """Drives one scheduler over instances that may come and go.

    Args:
        scheduler: Fresh; the runner is its only driver.
        instances: What executes batches from the start; more may `join`.
        clock: The clock of all times.
        create_alarm: Makes the wake-up that calls the given function.
        on_batch: Told about every executed batch.
    """

    def __init__(
        self,
        scheduler: Scheduler | Seat,
        instances: Sequence[Instance[Payload, Result]],
        clock: Clock,
        create_alarm: Callable[[Callable[[], None]], Alarm],
        on_batch: Callable[[BatchReport], None] = lambda _: None,
        splitting: Splitting[Payload, Result] | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._instances = {instance.name: instance for instance in instances}
        self._clock = clock
        self._create_alarm = create_alarm
        self._on_batch = on_batch
        self._splitting = splitting
        self._is_ordered = scheduler.preserves_ordering
        self._entries: dict[int, Caller[Payload, Result]] = {}
        self._events: list[Event] = []
        self._settled: list[Submission[Answer[Result]]] = []  # to be delivered in this turn of the loop
        self._flushing = False  # a flush is planned for this turn of the loop
        self._armed_ns: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # set while `run` runs
        self._alarm: Alarm
        self._drained: asyncio.Event
        self._defect: asyncio.Future[None]  # an error of the scheduler or its policy, which ends `run`

    async def run(self) -> None:
        """Serve until cancelled; then answer everything that is still held with `ShuttingDownError`.

        Raises:
            PolicyError: The policy broke a law. Nothing can be trusted any more, so this ends the runner.
        """
        self._loop = asyncio.get_running_loop()
        self._drained = asyncio.Event()
        self._defect = self._loop.create_future()
        self._alarm = self._create_alarm(self._on_alarm)
        try:
            self._post_joined(*self._instances.values())
            with seated(self._scheduler, self):
                await self._defect  # until the owner cancels, or the scheduler fails
        finally:
            self._loop = None  # from here on nothing is admitted or started, and what still runs ends unheard
            self._alarm.close()
            self._scheduler.close()
            for entry in self._entries.values():
                entry.fail(ShuttingDownError())
            self._drained.set()

    def reserve(self, rows: int, **how: Unpack[How]) -> Reservation[Payload, Result]:
        """Admit a request; use the result as a context manager. Arguments and errors as of `Scheduler.reserve`."""
        ticket = self._admit(rows, self._clock.now_ns(), how, asyncio.get_running_loop().create_future())
        self._arm()
        return Reservation(self, ticket)

    def submit(
        self, payload: Payload, rows: int, reply: Deliver[Answer[Result]], **how: Unpack[How]
    ) -> Submission[Answer[Result]]:
        """Admit and queue in one step, for rows that are ready. The reply comes when the next batch has started.

        Raises as `Scheduler.reserve`; the errors of `Reservation.execute` go to the reply.
        """
        now_ns = self._clock.now_ns()
        submission: Submission[Answer[Result]] = Submission(self, reply)
        submission.ticket = self._admit(rows, now_ns, how, submission)
        self._queue(submission.ticket, payload, now_ns)
        return submission

    async def execute(self, payload: Payload, rows: int, **how: Unpack[How]) -> Answer[Result]:
        """As `submit`, for callers that wait."""
        now_ns = self._clock.now_ns()
        future: asyncio.Future[Answer[Result]] = asyncio.get_running_loop().create_future()
        ticket = self._admit(rows, now_ns, how, future)
        self._queue(ticket, payload, now_ns)
        try:  # as in `wait_for_answer`, which would be a coroutine more for each request
            return await future
        finally:
            self._leave(ticket, future)
            del future, payload  # an error's traceback holds this frame: let it not hold tensors, nor itself

    async def drain(self) -> None:
        """Admit nothing more and wait until everything admitted has been answered."""
        self._scheduler.close()
        if self._loop is not None:
            self._note_drained()
            await self._drained.wait()

    def join(self, instance: Instance[Payload, Result]) -> None:
        """An instance executes batches from now on. No other that executes has its name.

        Batches that were started under the name before, and run elsewhere, occupy its slots until they end.
        """
        self._instances[instance.name] = instance
        self._post_joined(instance)

    def leave(self, name: str) -> None:
        """An instance gets no more batches; those that it has still end."""
        if self._loop is None:
            self._instances.pop(name, None)
        else:
            # Within a turn, leaving is told before joining; so what joined in this turn has never been here.
            self._events = [event for event in self._events if not _is_joining(event, name)]
            self._post(InstanceLeft(name))

    def abandon(self, error: Exception) -> None:
        """Answer everything that waits with an error, e.g. because no instance is left; what runs still ends."""
        for ticket, entry in self._entries.items():
            if not entry.is_running:
                entry.fail(error)
                self._post(Withdrawn(ticket))

    def statistics(self) -> SchedulerStatistics:
        """The scheduler's snapshot."""
        return self._scheduler.statistics()

    def _admit(self, rows: int, now_ns: int, how: How, promise: Promise[Answer[Result]]) -> int:
        if self._loop is None:
            raise ShuttingDownError
        ticket = self._scheduler.reserve(rows, now_ns, **how)
        self._entries[ticket] = Caller(promise, rows, is_held=self._is_ordered)
        return ticket

    # For submissions

    def note_settled(self, submission: Submission[Answer[Result]]) -> None:
        """Deliver its outcome after the next flush: what runs next does not wait for what is done with answers."""
        if not self._settled:
            asyncio.get_running_loop().call_soon(self._deliver)
        self._settled.append(submission)

    def forsake(self, ticket: int) -> None:
        """Forget a queued ticket."""
        del self._entries[ticket]
        self._post(Withdrawn(ticket))

    def _deliver(self) -> None:
        settled, self._settled = self._settled, []
        for submission in settled:
            del self._entries[submission.ticket]
            try:
                submission.deliver()
            except Exception as error:  # noqa: BLE001 - told as asyncio does; the others' answers are due all the same
                context = {"message": "an answer could not be delivered", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)

    # For reservations

    async def unless_ended(self, ticket: int, rows: Coroutine[Any, Any, Prepared]) -> Prepared:
        """The result of a coroutine, unless the ticket is answered with an error before."""
        ended = self._entries[ticket].future
        preparing = asyncio.ensure_future(rows)  # noqa: TID251 - awaited or cancelled below
        try:
            await asyncio.wait((preparing, ended), return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                ended.result()  # raises: before it is queued, a ticket can only be answered with an error
            return await preparing
        finally:
            preparing.cancel()
            preparing.add_done_callback(_see)

    async def wait_for_answer(self, ticket: int, payload: Payload) -> Answer[Result]:
        """Queue a ticket's payload and wait."""
        self._queue(ticket, payload, self._clock.now_ns())
        future = self._entries[ticket].future
        try:
            return await future
        finally:
            self._leave(ticket, future)
            del future, payload  # an error's traceback holds this frame: let it not hold tensors, nor itself

    def withdraw(self, ticket: int) -> None:
        """Forget a reserved ticket that was never queued."""
        self._entries.pop(ticket).forget()
        self._post(Withdrawn(ticket))

    def _queue(self, ticket: int, payload: Payload, now_ns: int) -> None:
        entry = self._entries[ticket]
        entry.payload = payload
        entry.arrived_ns = now_ns
        self._post(Arrived(ticket))

    def _leave(self, ticket: int, future: "asyncio.Future[Answer[Result]]") -> None:
        del self._entries[ticket]
        if future.cancelled():  # the caller left; otherwise the ticket has ended
            self._post(Withdrawn(ticket))

    # Events in

    def _post_joined(self, *instances: Instance[Payload, Result]) -> None:
        if self._loop is not None:  # otherwise `run` will tell
            for instance in instances:
                self._post(InstanceJoined(instance.name, instance.device, instance.max_in_flight))

    def _post(self, event: Event) -> None:
        self._events.append(event)
        self._plan_flush()

    def _plan_flush(self) -> None:
        if not self._flushing and self._loop is not None:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _on_alarm(self) -> None:
        self._armed_ns = None
        wake_ns = self._scheduler.wake_at_ns
        if wake_ns is not None and self._clock.now_ns() >= wake_ns:
            self._post(Timer())
        else:
            self._arm()  # early, or nothing to wake for any more

    # Commands out

    def _flush(self) -> None:
        self._flushing = False
        if self._loop is None:
            return
        events = self.pop_events()
        if not events:
            return  # they were told together with another model's
        try:
            commands = self._scheduler.handle(events, self._clock.now_ns())
        except Exception as error:  # noqa: BLE001 - raised again by `run`
            self.fail(error)
        else:
            self.follow(commands)

    # For `batching.sharing`, where one turn concerns several runners

    def pop_events(self) -> list[Event]:
        """What has happened since the last call."""
        events, self._events = self._events, []
        return events

    def follow(self, commands: Sequence[Command]) -> None:
        """Do what the scheduler wants, and look when it wants to be woken."""
        try:
            for command in commands:
                self._obey(command)
        except Exception as error:  # noqa: BLE001 - raised again by `run`
            self.fail(error)
        else:
            self._arm()
            self._note_drained()

    def fail(self, error: Exception) -> None:
        """End `run` with an error."""
        if not self._defect.done():
            self._defect.set_exception(error)

    def _obey(self, command: Command) -> None:
        match command:
            case Start():
                self._start(command)
            case Abort():
                raise PolicyError("a batch was preempted, which this driver cannot do")
            case _:
                if (caller := self._entries.get(command.ticket)) is not None:  # it may have left
                    _tell(caller, command)

    def _start(self, batch: Start) -> None:
        members = Members(batch, [self._entries[ticket] for ticket in batch.tickets], self._splitting)
        done = partial(self._end, members)
        try:
            self._instances[batch.instance].submit(members.payloads(), done)
        except Exception as error:  # noqa: BLE001 - e.g. rows that cannot be cut: the members of the batch are told
            asyncio.get_running_loop().call_soon(done, error)

    def _end(self, members: Members[Payload, Result], outcome: BatchResult[Result] | Exception) -> None:
        """A batch has ended."""
        if self._loop is None:
            return  # all callers have been told that it shuts down
        self._plan_flush()  # before the callers are woken: the next batch starts before they go on
        batch, times, padding_rows = members.batch, None, 0
        failed_requests = members.answer(outcome)
        if not isinstance(outcome, Exception):
            padding_rows = outcome.executed_rows - batch.rows
            if failed_requests < len(members):  # else it has failed: nothing is learnt of how long it took
                times = outcome.times
        self._events += [Withdrawn(ticket) for ticket in members.given_up]
        self._events += (BatchDone(batch.batch), InstanceFree(batch.batch, times is None))
        self._on_batch(
            BatchReport(
                rows=batch.rows,
                requests=len(members),
                padding_rows=padding_rows,
                times=times,
                reason=batch.reason,
                opened_ns=batch.opened_ns,
                sealed_ns=batch.sealed_ns,
                failed_requests=failed_requests,
            )
        )

    def _arm(self) -> None:
        """Arm the alarm only for an earlier time than it has: a needless ring costs less than a system call a batch."""
        wake_ns = self._scheduler.wake_at_ns
        if wake_ns is not None and (self._armed_ns is None or wake_ns < self._armed_ns):
            self._armed_ns = wake_ns
            self._alarm.arm(wake_ns)

    def _note_drained(self) -> None:
        if self._scheduler.is_closed and self._scheduler.is_empty:
            self._drained.set()


def _is_joining(event: Event, name: str) -> bool:
    return isinstance(event, InstanceJoined) and event.instance == name


def _see(task: "asyncio.Future[Any]") -> None:
    """Look at how a task ended, so that asyncio does not report its error as lost."""
    if not task.cancelled():
        task.exception()


def _tell(caller: Caller[Any, Any], command: Expire | Refuse | Release) -> None:
    match command:
        case Expire():
            caller.fail(DeadlineExceededError())
        case Refuse(_, reason):
            caller.fail(refusal_error(reason, admitted=True))
        case Release():
            caller.release()
