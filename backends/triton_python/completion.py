"""``auto_complete_config``: a model's code says what its inputs and outputs are, in a process of its own."""

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, NamedTuple

from backends.process.child import ChildProcess
from models.errors import RepositoryError

TIMEOUT_S = 60.0
_DEATH_S = 5.0


def complete(file: Path, config: str, *, timeout_s: float = TIMEOUT_S) -> str:
    """Let the code complete a configuration. Blocks; what the code prints is in the log.

    Args:
        file: The version's code.
        config: As JSON, in the field names of config.pbtxt.
        timeout_s: Then the process is ended.

    Returns:
        The completed configuration, likewise.

    Raises:
        RepositoryError: The code fails, crashes or takes too long; names the user's file and line.
    """
    model = f"model '{file.parent.parent.name}' version {file.parent.name}: "
    where = f"{model}auto_complete_config"
    with ExitStack() as stack:
        order, answer = (stack.enter_context(_shared_file(name)) for name in ("order", "answer"))
        order.write(json.dumps({"file": str(file), "config": config}).encode())
        order.flush()
        ending = _run(file.parent.parent.name, order, answer, timeout_s)
        answer.seek(0)
        text = answer.read()
    if not text:
        raise RepositoryError(f"{where}: its process {ending}, expected a completed configuration")
    outcome = _outcome(text)
    if outcome is None:
        raise RepositoryError(f"{where}: its process wrote what is no answer, expected a completed configuration")
    if outcome.error is not None:
        raise RepositoryError(f"{where}: {outcome.error.removeprefix(model)}")
    return outcome.config


class _Outcome(NamedTuple):
    config: str
    error: str | None


def _outcome(text: bytes) -> _Outcome | None:
    """What the process has answered; None if it, or what the code did to its descriptors, has left something else."""
    try:
        found = json.loads(text)
        return _Outcome(str(found.get("config", "")), found.get("error"))
    except (ValueError, AttributeError):
        return None


def _run(name: str, order: BinaryIO, answer: BinaryIO, timeout_s: float) -> str:
    """Run the process to its end, and say how that was."""
    fds = (order.fileno(), answer.fileno())
    module = "backends.triton_python.completion_main"
    child = ChildProcess.spawn(f"completion of {name}", module, list(map(str, fds)), fds, {})
    try:
        if not child.wait(timeout_s):
            child.kill(f"it took longer than {timeout_s:g} s")
            child.wait(_DEATH_S)
        return child.ending
    finally:
        if not child.ending:
            child.kill("nobody waits for it any more")
            child.wait(_DEATH_S)
        child.close()


def _shared_file(name: str) -> BinaryIO:
    return open(os.memfd_create(f"shoal-completion-{name}"), "w+b")  # noqa: PTH123 - has no path; the caller's
