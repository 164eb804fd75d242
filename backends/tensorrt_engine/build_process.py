"""Builds an engine in a process of its own, so that the serving ones neither wait nor crash with it.

``python -m backends.tensorrt_engine.build_process`` reads a `BuildJob` in JSON from its input; on failure it writes the
reason to its output and exits with status 1. A server that dies meanwhile leaves it to finish: the engine is kept.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Mapping
from contextlib import suppress

from backends.errors import LoadError
from backends.tensorrt_engine.bindings import load_tensorrt
from backends.tensorrt_engine.building import run_build
from backends.tensorrt_engine.jobs import BuildJob
from batching.clock import MonotonicClock

_NICENESS = 10  # a build keeps cores busy that decode images for the executors that serve meanwhile


async def build_in_process(job: BuildJob, environment: Mapping[str, str]) -> None:
    """Build the job's engine into the cache; returns when it is there. Cancelling ends the process.

    Args:
        job: From `needs_build`.
        environment: Added to this process's own, above all CUDA_VISIBLE_DEVICES with the GPU that is to run it.

    Raises:
        LoadError: It cannot be built; says why.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "backends.tensorrt_engine.build_process",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **environment},
    )
    try:
        output, _ = await process.communicate(job.to_json())
    except BaseException:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    if process.returncode:
        text = output.decode(errors="replace").strip()
        how = f"was killed by signal {-process.returncode}" if process.returncode < 0 else "failed without a word"
        raise LoadError(text or f"{job.model}: the process that built its TensorRT engine {how}")


def main() -> int:
    """Run the job on standard input; returns the exit status."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")  # to stderr
    os.nice(_NICENESS)
    try:
        run_build(load_tensorrt(), BuildJob.from_json(sys.stdin.buffer.read()), MonotonicClock())
    except (LoadError, ValueError) as error:
        sys.stdout.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
