"""How a real server is started and ended, tried on programs that say what it says."""

from pathlib import Path

import pytest

from loadtest.peers import triton
from loadtest.peers.install import READY


def installed(home: Path, script: str) -> Path:
    program = home / "triton/bin/tritonserver"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    (home / "triton" / READY).touch()
    return home


def test_a_server_is_there_once_all_of_it_is(tmp_path: Path) -> None:
    before = triton.is_installed(tmp_path)
    installed(tmp_path, "exit 1")

    assert (before, triton.is_installed(tmp_path)) == (False, True)


def test_a_server_serves_once_its_last_port_does_and_is_gone_after_the_block(tmp_path: Path) -> None:
    home = installed(tmp_path, 'echo "$@" > "$0.flags"; echo Started Metrics Service >&2; exec sleep 60')

    with triton.serving(tmp_path / "models", "--strict-readiness=true", home=home) as server:
        ports = {server.http_port, server.grpc_port, server.metrics_port}
        is_running = Path(f"/proc/{server.pid}").exists()

    assert (len(ports), is_running, Path(f"/proc/{server.pid}").exists()) == (3, True, False)
    flags = (home / "triton/bin/tritonserver.flags").read_text()
    assert f"--http-address=127.0.0.1 --http-port={server.http_port} " in flags
    assert flags.endswith("--strict-readiness=true\n")


def test_a_server_that_ends_says_why(tmp_path: Path) -> None:
    home = installed(tmp_path, "echo unknown flag >&2; exit 1")

    with pytest.raises(RuntimeError, match="unknown flag"), triton.serving(tmp_path, home=home):
        pass


def test_a_port_that_somebody_has_taken_is_chosen_again(tmp_path: Path) -> None:
    script = '[ -e "$0.tried" ] && { echo Started Metrics Service >&2; exec sleep 60; }\n: > "$0.tried"'
    home = installed(tmp_path, f"{script}; echo Address already in use >&2; exit 1")

    with triton.serving(tmp_path, home=home) as server:
        assert Path(f"/proc/{server.pid}").exists()
