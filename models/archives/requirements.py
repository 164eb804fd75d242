"""What an archive's handler needs from PyPI: listed always, installed only when the server was told to."""

import os
import re
import secrets
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from models.errors import ArchiveError
from models.spec import ModelSpec

REQUIREMENTS_FILE = "requirements_file"
REQUIREMENTS_DIRECTORY = "requirements_dir"
"""The parameter that tells the worker which directory to put on its path."""

_LARGEST_BYTES = 1 << 20
_FOLDER = re.compile(r"[0-9a-f]{64}")
_ABSOLUTE = re.compile(r"(?<![\w:/.])/(?:[^\s/'\"]+/)*")
_SHOWN_LINES = 3


def read_requirements(spec: ModelSpec) -> tuple[str, ...]:
    """The lines of the requirements file without comments; none for an archive without one.

    Raises:
        OSError: It cannot be read.
    """
    name = spec.parameters.get(REQUIREMENTS_FILE)
    if name is None:
        return ()
    with (_model_directory(spec) / name).open(encoding="utf-8", errors="replace") as file:
        lines = [re.sub(r"(^|\s)#.*", "", line).strip() for line in file.read(_LARGEST_BYTES).splitlines()]
    return tuple(line for line in lines if line)


def with_requirements(spec: ModelSpec, *, timeout_s: float = 900) -> ModelSpec:
    """The specification of an archive whose requirements are installed; the same if it has none. Blocks for minutes.

    Raises:
        ArchiveError: pip cannot install them; says what it says.
        OSError: A directory cannot be written.
    """
    if not read_requirements(spec):
        return spec
    directory = install_requirements(spec, timeout_s=timeout_s)
    return replace(spec, parameters={**spec.parameters, REQUIREMENTS_DIRECTORY: str(directory)})


def install_requirements(spec: ModelSpec, *, timeout_s: float = 900) -> Path:
    """Install an archive's requirements into a directory of their own, beside its private folder. Blocks for minutes.

    They are installed once for the content of an archive and a version of Python.

    Args:
        spec: Of an archive with a requirements file.
        timeout_s: For pip.

    Raises:
        ArchiveError: pip cannot install them; says what it says.
        OSError: A directory cannot be written.
    """
    folder = next(path for path in spec.file.parents if _FOLDER.fullmatch(path.name))
    target = folder.with_name(f"{folder.name}-{sys.implementation.cache_tag}")
    if target.is_dir():
        return target
    staging = folder.with_name(f".{secrets.token_hex(8)}")
    staging.mkdir(mode=0o700)
    try:
        _run_pip(spec, staging, timeout_s)
        try:
            staging.rename(target)
        except OSError:
            if not target.is_dir():  # another process was faster
                raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return target


def _run_pip(spec: ModelSpec, target: Path, timeout_s: float) -> None:
    # -I: neither the archive, which is the working directory for the sake of relative files, nor PYTHONPATH is
    # searched for modules, or an archive with a module of the right name would run in pip's place.
    command = [
        sys.executable, "-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check",
        "--no-warn-script-location", "--quiet", "--target", str(target),
        f"--requirement={spec.parameters[REQUIREMENTS_FILE]}",
    ]  # fmt: skip
    try:
        done = subprocess.run(  # noqa: S603 - no shell; what is installed is the archive's, as asked for
            command, cwd=_model_directory(spec), env=dict(os.environ), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, errors="replace", timeout=timeout_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise _failure(spec, f"pip still at work after {timeout_s:g} s") from error
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        said = [line for line in lines if line.startswith("ERROR")] or lines
        raise _failure(spec, f"pip failing: {_ABSOLUTE.sub('', '; '.join(said[-_SHOWN_LINES:]))[:1000]}")


def _failure(spec: ModelSpec, found: str) -> ArchiveError:
    where = f"{spec.name}/{spec.parameters[REQUIREMENTS_FILE]}"
    return ArchiveError(f"{where}: found {found}, expected requirements that can be installed")


def _model_directory(spec: ModelSpec) -> Path:
    return spec.file.parent.parent
