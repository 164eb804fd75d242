"""Blocking work that may hang: in threads that nothing waits for when the process ends."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def in_own_thread(work: Callable[[], T]) -> T:
    """Run blocking work in a daemon thread of its own.

    Not in the loop's shared threads: they are few, so that what hangs would keep others waiting, and the end of the
    process waits for them. Who is cancelled leaves the work to itself.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(value)  # type: ignore[arg-type]  # None only where T is

    def run() -> None:
        value, error = None, None
        try:
            value = work()
        except BaseException as raised:  # noqa: BLE001 - whatever it is, the caller must hear of it
            error = raised
        with suppress(RuntimeError):  # the loop has ended, and with it whoever waited
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=run, daemon=True, name="blocking").start()
    return await done
