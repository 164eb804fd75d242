"""Judges many traces, one process a core."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from batching.policies.triton import TritonExperiments
from loadtest.fidelity.clients import Traffic
from loadtest.fidelity.ensembles import Variation, variations
from loadtest.fidelity.errors import UnreadableTraceError
from loadtest.fidelity.families import family
from loadtest.fidelity.judgement import Judgement, judge
from loadtest.fidelity.laboratory import simulate
from loadtest.fidelity.policies import AS_TRITON_DOES, policy_of
from loadtest.fidelity.reader import read
from loadtest.fidelity.recordings import figures
from loadtest.fidelity.servers import SURROUNDINGS
from loadtest.fidelity.service import learn
from loadtest.fidelity.traces import Trace


@dataclass(frozen=True, slots=True)
class Verdict:
    """One case judged.

    Attributes:
        case: Its name.
        family: Letter of its family.
        decides: Whether it counts.
        judgement: What was found.
    """

    case: str
    family: str
    decides: bool
    judgement: Judgement

    @property
    def fails(self) -> bool:
        """Whether this case fails the suite."""
        return self.decides and not self.judgement.is_inside


def judge_trace(trace: Trace, experiments: TritonExperiments = AS_TRITON_DOES, *, thin: bool = False) -> Verdict:
    """Simulate a trace's ensemble and compare.

    Args:
        trace: What was recorded.
        experiments: Rules to break (Triton only).
        thin: Run only a fifth of the ensemble, for a first impression.
    """
    model = learn(trace)
    asked = family(trace, model)
    runs = [simulate(trace, model, variation, experiments) for variation in variations(trace, asked, thin=thin)]
    real = figures(trace.recording, trace.mean_queue_ms)
    return Verdict(trace.case, asked.name, asked.decides, judge(asked, real, runs))


def judge_files(
    paths: Sequence[Path], experiments: TritonExperiments = AS_TRITON_DOES, *, thin: bool = False
) -> Iterator[Verdict]:
    """Verdicts in the order of the files; every run has a fixed seed, so they are always the same.

    Raises:
        FidelityError: A file cannot be judged; all are read before the first run.
    """
    for path in paths:
        _check(path)
    judge_file = partial(_judge_file, experiments=experiments, thin=thin)
    if len(paths) == 1:  # processes would only cost their start
        yield judge_file(paths[0])
        return
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=get_context("spawn")) as processes:
        yield from processes.map(judge_file, paths)


def _check(path: Path) -> None:
    trace = read(path)
    variation = Variation(SURROUNDINGS[trace.server], first_rows=1, seed=0)
    try:
        policy_of(trace, variation, Traffic(), AS_TRITON_DOES)()
    except ValueError as error:
        raise UnreadableTraceError(str(path), f"batching_config is none of {trace.server.value}: {error}") from error


def _judge_file(path: Path, *, experiments: TritonExperiments, thin: bool) -> Verdict:
    return judge_trace(read(path), experiments, thin=thin)
