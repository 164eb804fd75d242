"""Takes the programs out of their wheels: no environment of their own, nothing outside of one directory."""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

PYTRITON = "nvidia-pytriton==0.7.0"  # tritonserver 2.51.0 with its Python backend
TRITONCLIENT = "tritonclient==2.49.0"  # the last whose wheel has perf_analyzer
NUMPY = "numpy==1.26.4"  # its models' interpreter: with numpy 2 the Python backend mistakes sizes
CUDA_RUNTIME = "nvidia-cuda-runtime-cu12==12.6.77"  # perf_analyzer links it, also where there is no GPU
READY = "ready"
"""A file in the server's directory, when all of it is there."""
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_STUB = "triton_python_backend_stub"
_WRAPPER = """#!/bin/sh
home=$(cd "$(dirname "$0")/.." && pwd)
LD_LIBRARY_PATH="$home/perf_analyzer" exec "$home/perf_analyzer/perf_analyzer" "$@"
"""


class UnavailableError(Exception):
    """A peer does not run on this machine; the text says what is missing."""


def install_triton(home: Path) -> Path:
    """The directory ``triton`` below `home`, complete.

    Raises:
        UnavailableError: Not this platform, no wheel, or a library of the system is missing.
    """
    target = home / "triton"
    if not (target / READY).is_file():
        shutil.rmtree(target, ignore_errors=True)
        with _unpacked(PYTRITON) as wheel:
            _lay_out(wheel / "pytriton/tritonserver", wheel / "nvidia_pytriton.libs")
            shutil.move(wheel / "pytriton/tritonserver", _made(home) / "triton")
        venv.create(target / "python", with_pip=True)
        _pip(target / "python/bin/python", "install", NUMPY)
        (target / READY).touch()
    _check_libraries(target / "backends/python" / _STUB, target / "lib", f"apt-get install libpython{_PYTHON}")
    _check_libraries(target / "bin/tritonserver", target / "lib", "a Linux with glibc 2.35 or newer")
    return target


def _lay_out(server: Path, libraries: Path) -> None:
    """Make of the package's directory one that the server can be started from."""
    stub = server / "python_backend_stubs" / _PYTHON / _STUB
    if not stub.is_file():
        raise UnavailableError(f"{PYTRITON} has no Python backend for Python {_PYTHON}")
    shutil.move(stub, server / "backends/python" / _STUB)
    shutil.rmtree(server / "python_backend_stubs")
    shutil.move(libraries, server / "lib")
    for program in (server / "bin/tritonserver", server / "backends/python" / _STUB):
        program.chmod(0o755)


def install_perf_analyzer(home: Path) -> Path:
    """The program ``bin/perf_analyzer`` below `home`; raises as `install_triton` does."""
    target, program = home / "perf_analyzer", home / "bin/perf_analyzer"
    if not program.is_file():
        with _unpacked(TRITONCLIENT) as client, _unpacked(CUDA_RUNTIME) as runtime:
            found = next(client.glob("*.data/data/bin/perf_analyzer"), None)
            if found is None:
                raise UnavailableError(f"the wheel of {TRITONCLIENT} has no perf_analyzer for this platform")
            shutil.rmtree(target, ignore_errors=True)
            shutil.move(found, _made(target) / "perf_analyzer")
            shutil.move(runtime / "nvidia/cuda_runtime/lib/libcudart.so.12", target)
        (target / "perf_analyzer").chmod(0o755)
        _made(program.parent)
        program.write_text(_WRAPPER)
        program.chmod(0o755)
    _check_libraries(target / "perf_analyzer", target, "apt-get install libb64-0d")
    return program


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory


class _unpacked:  # noqa: N801 - it is used as a function
    """The content of a package's wheel, in a temporary directory."""

    def __init__(self, requirement: str) -> None:
        self._requirement = requirement
        self._directory = tempfile.TemporaryDirectory(prefix="peers-")

    def __enter__(self) -> Path:
        root = Path(self._directory.name)
        _pip(Path(sys.executable), "download", self._requirement, "-d", str(root))
        for wheel in root.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(root)
        return root

    def __exit__(self, *_: object) -> None:
        self._directory.cleanup()


def _pip(python: Path, command: str, requirement: str, *flags: str) -> None:
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise UnavailableError(f"{requirement} is for Linux on x86_64")
    # A constraint on what this project depends on is none on its peers.
    environment = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    done = subprocess.run(  # noqa: S603 - an interpreter of our own
        [str(python), "-m", "pip", command, "-q", "--no-deps", "--only-binary=:all:", *flags, requirement],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        reasons = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise UnavailableError(f"{requirement} cannot be fetched: {' '.join(reasons) or done.stderr}")


def _check_libraries(program: Path, library_path: Path, remedy: str) -> None:
    """Raise if the dynamic linker would not find all that the program needs."""
    missing = sorted(set(_missing(program, library_path)))
    if missing:
        raise UnavailableError(f"{program.name} needs {', '.join(missing)}: {remedy}")


def _missing(program: Path, library_path: Path) -> Iterator[str]:
    ldd = shutil.which("ldd")
    if ldd is None:
        raise UnavailableError("there is no ldd: a Linux with glibc is needed")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library_path)}
    done = subprocess.run(  # noqa: S603 - the system's own
        [ldd, str(program)], env=environment, capture_output=True, text=True, check=False
    )
    for line in done.stdout.splitlines():
        if "not found" in line:
            yield line.split()[0].removesuffix(":")
