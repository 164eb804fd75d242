"""What the executors of a placement share: made by the first that asks, gone with the last that lets go."""

import threading
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Shared(Generic[Value]):
    """Makes a value once, however many threads ask; its owners are those who hold it.

    Args:
        make: Makes it. What it raises reaches the caller, and the next one tries again.
    """

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._reference: Callable[[], Value | None] = lambda: None

    def acquire(self) -> Value:
        """The value, made now if nobody holds one."""
        with self._lock:
            value = self._reference()
            if value is None:
                value = self._make()
                self._reference = weakref.ref(value)
            return value
