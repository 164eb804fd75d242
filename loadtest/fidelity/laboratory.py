"""One simulated run: a policy in the product's simulator, inside the surroundings of the recorded server."""

from collections.abc import Sequence

import numpy as np
from typing_extensions import override

from batching.clock import MICROSECOND_NS, MILLISECOND_NS, SECOND_NS
from batching.core.actions import RefusalReason
from batching.core.errors import BatchingError
from batching.core.events import InstanceJoined
from batching.core.limits import Limits
from batching.policies.triton import TritonExperiments
from batching.simulation import Arrival, Entry, House, Observer, Run, play
from loadtest.fidelity.clients import ClientThread, Traffic
from loadtest.fidelity.ensembles import Beginning, Variation, beginning
from loadtest.fidelity.policies import policy_of
from loadtest.fidelity.recordings import Figures, IntTable, Recording, figures
from loadtest.fidelity.servers import Surroundings
from loadtest.fidelity.service import RecordedModel, occupancy
from loadtest.fidelity.traces import BatchingConfig, Trace

_NO_LIMIT = 1 << 30
_UNLIMITED_SLOTS = 1 << 20
_TIMES = 2  # the first columns of both tables
_OK, _REFUSED = 200, 503


class _Notes(Observer):
    """Writes down what a trace holds."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self.requests: list[tuple[int, int, int]] = []
        self.batches: list[tuple[int, int, int]] = []
        self.waited_ns = 0
        self.waiters = 0

    @override
    def arrived(self, now_ns: int, replica: int, arrival: Arrival) -> None:
        self._traffic.on_the_way -= 1

    @override
    def started(self, run: Run) -> None:
        self.batches.append((run.begins_ns, run.ends_ns, run.command.rows))
        if len(self.batches) > 1:  # the first one waits for the instances
            self.waited_ns += len(run.entries) * run.taken_ns - sum([entered_ns for entered_ns, _ in run.entries])
            self.waiters += len(run.entries)

    @override
    def answered(self, now_ns: int, run: Run, entries: Sequence[Entry], answers_ns: Sequence[int]) -> None:
        for (_, arrival), answer_ns in zip(entries, answers_ns, strict=True):
            self.requests.append((arrival.at_ns, answer_ns - arrival.at_ns, _OK))

    @override
    def refused(self, now_ns: int, arrival: Arrival, error: BatchingError) -> None:
        self._traffic.on_the_way -= 1
        self.requests.append((arrival.at_ns, now_ns - arrival.at_ns, _REFUSED))

    @override
    def dropped(self, now_ns: int, entry: Entry, reason: RefusalReason) -> None:
        self.requests.append((entry[1].at_ns, now_ns - entry[1].at_ns, _REFUSED))


def simulate(trace: Trace, model: RecordedModel, variation: Variation, experiments: TritonExperiments) -> Figures:
    """Simulate one run to its end and measure it.

    Args:
        trace: What was recorded.
        model: Its durations.
        variation: How this run differs from others.
        experiments: Rules to break (Triton only).
    """
    begins, traffic = beginning(trace, variation), Traffic()
    notes = _Notes(traffic)
    play(
        policy_of(trace, variation, traffic, experiments),
        begins.load,
        occupancy(model, variation.around, trace.config.instances),
        _house(trace.config, variation.around, begins, traffic),
        observers=[notes],
        seed=variation.seed,
    )
    recording = Recording.of(_microseconds(notes.requests), _microseconds(notes.batches))
    return figures(recording, notes.waited_ns / MILLISECOND_NS / max(notes.waiters, 1))


def _house(config: BatchingConfig, around: Surroundings, begins: Beginning, traffic: Traffic) -> House:
    slots = _UNLIMITED_SLOTS if around.queues_batches else 1
    ready_s = begins.ready_ns / SECOND_NS
    joins = [InstanceJoined(f"instance_{number}", slots=slots) for number in range(config.instances)]
    return House(
        limits=Limits(
            max_batch_rows=config.max_batch_rows if config.batches else 1, max_requests=_NO_LIMIT, max_rows=_NO_LIMIT
        ),
        instances=(),
        changes=[(ready_s, join) for join in joins],
        network=ClientThread(around, begins.load.resends, traffic),
        preserve_ordering=config.preserve_ordering,
    )


def _microseconds(rows: Sequence[tuple[int, int, int]]) -> IntTable:
    table = np.array(rows, dtype=np.int64)
    table[:, :_TIMES] //= MICROSECOND_NS
    return table
