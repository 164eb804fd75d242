"""An event loop in a thread of its own, for models whose code is async."""

import asyncio
import contextlib
import inspect
import logging
import os
import selectors
import threading
from collections.abc import Callable, Iterator
from typing import Any

from typing_extensions import override

logger = logging.getLogger(__name__)


class _OwnSelector(selectors.DefaultSelector):
    """Ends a child that model code has forked when it comes back to the loop: it has the parent's descriptors."""

    def __init__(self) -> None:
        super().__init__()
        self._pid = os.getpid()

    @override
    def select(self, timeout: float | None = None) -> "list[tuple[selectors.SelectorKey, int]]":
        if os.getpid() != self._pid:
            os._exit(0)
        return super().select(timeout)


@contextlib.contextmanager
def thread_event_loop() -> Iterator[None]:
    """Within the block, ``asyncio.get_event_loop()`` finds a loop in this thread, as code expects of a main thread.

    What the code has left in it is cancelled at the end. A thread whose own loop runs has one already.
    """
    if _is_loop_running():
        yield
        return
    runner = asyncio.Runner()
    loop = runner.get_loop()  # also makes it the thread's
    try:
        yield
    finally:
        asyncio.set_event_loop(None)
        if _is_loop_running():
            loop.close()
        elif not loop.is_closed():  # code may have done so
            runner.close()


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class LoopThread:
    """Runs a model's functions, async or not, in one thread; others wait for their results.

    Args:
        name: Of the thread.
    """

    def __init__(self, name: str) -> None:
        self._runner = asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(_OwnSelector()))
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._is_closing = False

    def start(self) -> None:
        """Start the thread. Call it once, before the first `call`."""
        self._runner.get_loop()  # here, so that `call` finds the loop whatever the thread has done by then
        self._thread.start()

    def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        """What the function returns, awaited if it can be. Raises whatever it raises. Blocks the calling thread."""
        loop = self._runner.get_loop()
        result, error = asyncio.run_coroutine_threadsafe(_outcome(function, arguments), loop).result()
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        """Cancel what still runs and end the thread. Call it once, after `start`."""
        self._is_closing = True
        self._runner.get_loop().call_soon_threadsafe(self._runner.get_loop().stop)
        self._thread.join()

    def _run(self) -> None:
        loop = self._runner.get_loop()
        asyncio.set_event_loop(loop)
        while not self._is_closing:
            try:
                loop.run_forever()
            except BaseException:
                # SystemExit in a task that the model started; those who wait for a result need the loop.
                logger.exception("%s: a task of the model ended its event loop, which goes on", self._thread.name)
        try:
            self._runner.close()
        except BaseException:
            logger.exception("%s: the tasks of the model did not end orderly", self._thread.name)


async def _outcome(function: Callable[..., Any], arguments: tuple[object, ...]) -> tuple[Any, BaseException | None]:
    """Result and error as values: SystemExit would end the loop instead of reaching the caller."""
    try:
        result = function(*arguments)
        return (await result if inspect.isawaitable(result) else result), None
    except BaseException as error:  # noqa: BLE001 - see above; a cancelled model is an error of the batch, too
        return None, error
