"""TensorRT says why something failed to a logger only; this one keeps it for the error, and passes the rest on.

TensorRT uses the first logger that a process gives it for everything, for as long as anything of it lives: so there is
one in a process, see `bindings.load_tensorrt`.
"""

import logging
import re
import threading
from collections import deque
from pathlib import Path
from typing import NamedTuple

from backends.tensorrt_engine.api import TensorRt
from backends.tensorrt_engine.keys import Machine

logger = logging.getLogger(__name__)

_ERROR, _WARNING, _INFO = 1, 2, 3  # ILogger.Severity; 0 is an internal error, 4 chatter
_KEPT = 8
_SOURCE = re.compile(r"\[[\w./]+::[^\]]*\]\s*|\bIRuntime::\w+:\s*|\(?In \S+ at [^)\s]+:\d+\)?")
_OTHER_LIBRARY = re.compile(r"expecting library version (?P<expected>[\d.]+) got (?P<found>[\d.]+)")
_OTHER_FORMAT = re.compile(r"Current Version: (?P<expected>\d+), Serialized Engine Version: (?P<found>\d+)")
_OTHER_DEVICE = re.compile(r"expecting compute (?P<expected>[\d.]+) got compute (?P<found>[\d.]+)")


class Messages:
    """Errors that TensorRT reported since they were last taken. Filled from any thread, also from TensorRT's own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._errors: deque[tuple[int, str]] = deque(maxlen=_KEPT)  # with the thread

    def record(self, severity: int, text: str) -> None:
        """Keep an error, log a warning."""
        if severity <= _ERROR:
            with self._lock:
                self._errors.append((threading.get_ident(), text))
        elif severity <= _INFO:
            logger.log(logging.WARNING if severity == _WARNING else logging.DEBUG, "TensorRT: %s", text)

    def take(self) -> str:
        """The errors of this thread, or else of all, in one line; the first and most telling one comes first."""
        own = threading.get_ident()
        with self._lock:
            chosen = [entry for entry in self._errors if entry[0] == own] or list(self._errors)
            self._errors = deque((entry for entry in self._errors if entry not in chosen), maxlen=_KEPT)
        return clean("; ".join(text for _, text in chosen)) or "TensorRT gives no reason"


class Library(NamedTuple):
    """TensorRT in this process.

    Attributes:
        api: The module.
        logger: The process's only one, as TensorRT takes it.
        messages: What it received.
    """

    api: TensorRt
    logger: object
    messages: Messages


def with_logger(api: TensorRt) -> Library:
    """The module with a logger of its own."""
    messages = Messages()

    def log(_self: object, severity: int, text: str) -> None:
        messages.record(int(severity), text)

    return Library(api, type("MessagesLogger", (api.ILogger,), {"log": log})(), messages)


def clean(text: str, *files: Path) -> str:
    """The text on one line, without TensorRT's source lines and without the directories of the files."""
    for file in files:
        for directory in {file.parent, file.absolute().parent, file.resolve().parent}:
            text = text.replace(f"{directory}/", "")
    return " ".join(_SOURCE.sub("", text).split())


def explain_refusal(text: str, machine: Machine) -> str:
    """Why a plan cannot be read, naming what it was built for and what is here."""
    here = f"this is {machine.describe()}"
    if found := _OTHER_LIBRARY.search(text):
        return f"it was built with TensorRT {_other(found, machine.tensorrt_version)}, {here}"
    if found := _OTHER_DEVICE.search(text):
        return f"it was built for GPUs of compute capability {_other(found, machine.compute_capability)}, {here}"
    if found := _OTHER_FORMAT.search(text):
        return f"it has version {found['found']} of TensorRT's plan format, expected {found['expected']}: {here}"
    return f"TensorRT refuses it ({text}), {here}"


def _other(found: re.Match[str], own: str) -> str:
    """The plan's value: TensorRT's versions disagree on which of the two they call expected."""
    return found["expected"] if own.startswith(found["found"]) else found["found"]
