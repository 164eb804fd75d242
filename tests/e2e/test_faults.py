"""Workers that die, hang, are stopped or tear at their own bonds: who is answered, what is shown, how it comes back."""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.e2e.server import COMMAND, PATIENCE_S, ROOT, Server, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.long]

VISIBLE_S = 2.0

CONFIG = """
backend: "python"
max_batch_size: 8
input [ {{ name: "x" data_type: TYPE_INT64 dims: [ 1 ] }} ]
output [ {{ name: "y" data_type: TYPE_INT64 dims: [ 1 ] }} ]
instance_group [ {{ count: {instances} kind: KIND_CPU }} ]
"""
MODEL = """
import ctypes, os, re, signal, threading
from pathlib import Path

import numpy as np

def is_wanted(wish):
    return Path(__file__).with_name(wish).exists()

def loop():
    while True:
        pass

if is_wanted("refuse"):
    raise ValueError("no such luck")
if is_wanted("hang"):
    Path(__file__).with_name("hangs").touch()
    loop()

def write_garbage():
    for fd in range(3, 64):
        try:
            os.write(fd, b"\\xff{}" * 99)
        except OSError:
            pass

WISHES = {
    901: lambda: os.kill(os.getpid(), signal.SIGKILL),
    902: lambda: ctypes.string_at(0),
    903: loop,
    904: lambda: re.match("(a|a)*$", "a" * 40 + "b"),
    905: lambda: os._exit(3),
    906: lambda: os.closerange(3, 4096),
    907: write_garbage,
    908: os.fork,  # and both go on
    909: os.abort,
}

class Model:
    def close(self):
        if is_wanted("hang on close"):
            loop()

    def execute(self, inputs):
        x = inputs["x"]
        WISHES.get(int(x.max()), int)()
        if int(x.max()) == 910:
            if len(x) > 3:
                raise MemoryError
            x = np.full_like(x, len(x))
        return {"y": x.copy()}
"""


def add_risky(root: Path, name: str, *, instances: int = 1, execution: str = "", batching: str = "") -> Path:
    """A model that does what the number in its input says; returns where files turn its further wishes on."""
    directory = root / name / "1"
    directory.mkdir(parents=True)
    (directory / "model.py").write_text(MODEL)
    (root / name / "config.pbtxt").write_text(CONFIG.format(instances=instances))
    (root / name / "shoal.toml").write_text(f"[execution]\n{execution}\n[batching]\n{batching}\n")
    return directory


def ask(server: Server, model: str, *rows: int) -> httpx.Response:
    tensor = {"name": "x", "datatype": "INT64", "shape": [len(rows), 1], "data": rows}
    return server.client.post(f"/v2/models/{model}/infer", json={"inputs": [tensor]})


def answered(response: httpx.Response) -> list[int]:
    assert response.status_code == 200, response.text
    return list(response.json()["outputs"][0]["data"])


def children(pid: int) -> set[int]:
    """Processes that it has started, zombies too."""
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            found |= set(map(int, (task / "children").read_text().split()))
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def is_in_state(server: Server, model: str, *states: str) -> bool:
    return any(server.metric("shoal_instance_state", model=model, state=state) for state in states)


def is_ready(server: Server, model: str) -> bool:
    return server.client.get(f"/v2/models/{model}/ready").status_code == 200


def wait_for_batch(server: Server, model: str, count: int = 1) -> None:
    wait_until(lambda: server.metric("shoal_running_batches", model=model) == count, "the batch to run")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serves models in workers: `risky`, which tests break, and `calm`, which must not notice."""
    root = tmp_path_factory.mktemp("faults")
    add_risky(root, "risky", execution="step_timeout_s = 1.5\nmax_restarts = -1")
    add_risky(root, "calm")
    with Server(f"--model-repository={root}") as server:
        yield server


@pytest.fixture
def clients() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(32) as clients:
        yield clients


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        pytest.param(901, "was killed by signal 9 (SIGKILL)", id="SIGKILL"),
        pytest.param(902, "was killed by signal 11 (SIGSEGV)", id="segfault"),
        pytest.param(903, "was ended: a step took longer than 1.5 s", id="endless loop"),
        pytest.param(904, "was ended: a step took longer than 1.5 s", id="endless loop that keeps the lock"),
        pytest.param(905, "exited with status 3", id="exit"),
        pytest.param(906, "exited with status 1", id="closed descriptors"),
        pytest.param(907, "was ended: it sent what no worker sends", id="garbage"),
        pytest.param(909, "was killed by signal 6 (SIGABRT)", id="abort"),
    ],
)
def test_a_lost_batch_is_answered_with_the_reason_and_others_do_not_notice(
    server: Server, clients: ThreadPoolExecutor, wish: int, reason: str
) -> None:
    calm_before = children(server.pid)

    lost = clients.submit(ask, server, "risky", wish)
    calm = [answered(ask(server, "calm", number)) for number in range(5)]

    assert lost.result().status_code == 503
    assert reason in lost.result().json()["error"]
    assert " /" not in lost.result().json()["error"]
    assert calm == [[number] for number in range(5)]
    assert answered(ask(server, "risky", 7)) == [7]
    assert len(children(server.pid) & calm_before) == 1  # the calm one's worker


def test_a_fork_of_a_worker_answers_nobody(server: Server) -> None:
    forked = ask(server, "risky", 908)
    later = [ask(server, "risky", number) for number in range(10)]

    assert answered(forked) == [908]
    assert [answered(each) for each in later] == [[number] for number in range(10)]


def test_a_hanging_batch_is_shown_before_its_time_is_over(server: Server, clients: ThreadPoolExecutor) -> None:
    lost = clients.submit(ask, server, "risky", 904)

    wait_until(lambda: is_in_state(server, "risky", "stalled", "restarting"), "the stall to be shown", VISIBLE_S)

    assert lost.result().status_code == 503
    wait_until(lambda: is_ready(server, "risky"), "the model to come back")


def test_a_stopped_worker_is_shown_and_replaced_unaided(tmp_path: Path) -> None:
    add_risky(tmp_path, "risky")
    with Server(f"--model-repository={tmp_path}") as server:
        (stopped,) = children(server.pid)

        os.kill(stopped, signal.SIGSTOP)
        wait_until(lambda: not is_in_state(server, "risky", "ready"), "the stop to be shown", VISIBLE_S)
        wait_until(lambda: is_in_state(server, "risky", "ready"), "a new worker")

        assert answered(ask(server, "risky", 7)) == [7]
        assert not is_alive(stopped)


def test_killed_workers_leave_nothing_behind(server: Server) -> None:
    def holdings() -> tuple[int, int, int]:
        entries = Path(f"/proc/{server.pid}/fd").iterdir()
        memory = [entry for entry in entries if entry.is_symlink() and "memfd" in str(entry.readlink())]
        threads = list(Path(f"/proc/{server.pid}/task").iterdir())
        return len(memory), len(threads), len(children(server.pid))

    answered(ask(server, "risky", 7))
    before = holdings()

    for _ in range(5):
        assert ask(server, "risky", 901).status_code == 503
        assert answered(ask(server, "risky", 7)) == [7]

    wait_until(lambda: holdings() == before, f"as few memory files, threads and processes as before: {before}")


def test_what_waits_is_answered_when_the_model_cannot_be_loaded_again(
    tmp_path: Path, clients: ThreadPoolExecutor
) -> None:
    wishes = add_risky(tmp_path, "risky")
    with Server(f"--model-repository={tmp_path}", "--request-timeout-secs=15") as server:
        (wishes / "refuse").touch()

        lost = clients.submit(ask, server, "risky", 905)
        lost.result()
        waiting = [clients.submit(ask, server, "risky", number) for number in range(3)]
        errors = {call.result().json()["error"] for call in waiting}

        assert all("no instance works" in error and "no such luck (at model.py:" in error for error in errors)
        assert not is_ready(server, "risky")


def test_clients_with_tiny_deadlines_cost_no_worker(server: Server, clients: ThreadPoolExecutor) -> None:
    answered(ask(server, "risky", 7))
    before = children(server.pid)

    def give_up(number: int) -> None:
        tensor = {"name": "x", "datatype": "INT64", "shape": [1, 1], "data": [number]}
        with suppress(httpx.TimeoutException):
            server.client.post("/v2/models/risky/infer", json={"inputs": [tensor]}, timeout=0.002)

    list(clients.map(give_up, range(200)))

    assert answered(ask(server, "risky", 7)) == [7]
    assert children(server.pid) == before


def test_parts_of_a_batch_that_is_too_large_have_allowed_sizes_up_to_the_cap(tmp_path: Path) -> None:
    add_risky(tmp_path, "risky", batching="allowed_batch_sizes = [1, 2, 4, 8]")
    with Server(f"--model-repository={tmp_path}") as server:
        sizes = [answered(ask(server, "risky", *[910] * rows)) for rows in (8, 8, 7, 3, 1)]
        cap = server.metric("shoal_instance_cap_rows", model="risky")
        failures = server.metric("shoal_instance_memory_failures", model="risky")

    assert (cap, failures) == (2, 2)  # of 8 rows and of 4; then it knows
    assert [max(each) for each in sizes] == [2, 2, 2, 2, 1]
    assert {size for each in sizes for size in each} <= {1, 2}


def test_no_worker_outlives_a_server_that_is_killed(tmp_path: Path, clients: ThreadPoolExecutor) -> None:
    add_risky(tmp_path, "risky", instances=3)
    with Server(f"--model-repository={tmp_path}") as server:
        workers = children(server.pid)
        busy: Sequence[Future[httpx.Response]] = [clients.submit(ask, server, "risky", wish) for wish in (903, 904)]
        wait_for_batch(server, "risky", 2)
        os.kill(min(workers), signal.SIGSTOP)

        server.send_signal(signal.SIGKILL)

        wait_until(lambda: not any(map(is_alive, workers)), "the workers to end", VISIBLE_S)
        assert all(isinstance(call.exception(), httpx.TransportError) for call in busy)
        assert len(workers) == 3


def test_a_server_whose_model_hangs_while_it_is_loaded_ends_in_order(tmp_path: Path) -> None:
    wishes = add_risky(tmp_path, "risky")
    (wishes / "hang").touch()
    ports = ("--http-port=0", "--grpc-port=0", "--metrics-port=0")
    command = [*COMMAND, "serve", *ports, f"--model-repository={tmp_path}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, cwd=ROOT) as process:
        try:
            wait_until((wishes / "hangs").exists, "the model to be loaded")
            workers = children(process.pid)

            process.send_signal(signal.SIGINT)

            assert process.wait(PATIENCE_S / 2) == 0
            assert not any(map(is_alive, workers))
        finally:
            process.kill()


def test_a_server_whose_model_hangs_while_it_is_loaded_again_ends_in_order(tmp_path: Path) -> None:
    wishes = add_risky(tmp_path, "risky")
    with Server(f"--model-repository={tmp_path}") as server:
        (wishes / "hang").touch()
        assert ask(server, "risky", 905).status_code == 503
        wait_until((wishes / "hangs").exists, "the model to be loaded again")

        server.send_signal(signal.SIGTERM)
        code = server.exit_code(PATIENCE_S / 2)

    assert code == 0


def test_a_model_that_does_not_close_delays_the_end_by_seconds_only(tmp_path: Path) -> None:
    wishes = add_risky(tmp_path, "risky", execution="step_timeout_s = 60.0")
    with Server(f"--model-repository={tmp_path}") as server:
        (wishes / "hang on close").touch()

        server.send_signal(signal.SIGTERM)
        code = server.exit_code(PATIENCE_S)

    assert code == 0
