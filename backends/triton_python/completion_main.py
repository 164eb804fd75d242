"""The process that runs ``auto_complete_config``. Arguments: the descriptors of two files, the order and the answer."""

import contextlib
import ctypes
import json
import os
import signal
import sys
from pathlib import Path

from backends.errors import LoadError
from backends.process.import_path import OwnPackages, user_code_path
from backends.python_outputs import kind_of
from backends.triton_python.code import TritonCode
from backends.triton_python.model_config import ModelConfig
from models.spec import ModelSpec

_LIFETIME_S = 600  # should the server die and not end it
_PR_SET_PDEATHSIG = 1  # of prctl(2)


def completed(file: Path, config: str) -> str:
    """What the code makes of a configuration, both as JSON. Raises LoadError."""
    spec = _any_spec(file)
    code = TritonCode(spec)
    owner = code.find(code.load())
    if not hasattr(owner, "auto_complete_config"):
        return config
    try:
        found = owner.auto_complete_config(ModelConfig(config))
    except BaseException as error:  # noqa: BLE001 - also SystemExit: it is told, with the user's line
        failure = code.load_error(error)
    else:
        if isinstance(found, ModelConfig):
            return _as_json(code, found)
        failure = code.refusal(f"{kind_of(found)} returned", "expected the ModelConfig that it was given")
    raise failure


def _as_json(code: TritonCode, found: ModelConfig) -> str:
    try:
        return json.dumps(found.as_dict())
    except (TypeError, ValueError) as error:  # what the code has put there without `add_input` and the like
        failure = code.refusal(f"a configuration that is no JSON ({error})", "expected plain numbers, texts and lists")
    raise failure


def _any_spec(file: Path) -> ModelSpec:
    return ModelSpec(
        name=file.parent.parent.name,
        version=int(file.parent.name),
        platform="",
        backend="python",
        max_batch_rows=0,
        inputs=(),
        outputs=(),
        instance_groups=(),
        file=file,
    )


def main(order_fd: str, answer_fd: str) -> None:
    """Read the order, run the code, write the answer, and end the process."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # nobody waits for it when the server has died
    signal.alarm(_LIFETIME_S)
    own_pid = os.getpid()
    size_bytes = os.fstat(int(order_fd)).st_size
    order = json.loads(os.pread(int(order_fd), size_bytes, 0))  # from its start, wherever the writer was
    path = Path(order["file"])
    OwnPackages().hide()
    user_code_path(path.parent)
    try:
        outcome = {"config": completed(path, order["config"])}
    except LoadError as error:
        outcome = {"error": str(error)}
    if os.getpid() != own_pid:
        os._exit(0)  # a child that the code has forked, and that came back from it: only the parent answers
    with os.fdopen(int(answer_fd), "wb") as answer:
        answer.write(json.dumps(outcome).encode())
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the code may have put anything in their places
            stream.flush()
    os._exit(0)  # threads that the code has started would keep the process alive


if __name__ == "__main__":
    main(*sys.argv[1:])
