"""How the cores of a CPU are split among instances: what is decided, what is measured, what is kept."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.cpu_plan import choose_plan, decide, is_open, splits
from backends.cpu_plan_cache import CpuPlan
from backends.cpu_trial import Figure, Split
from backends.errors import ExecutionError, LoadError
from backends.fake import FakeExecutor
from backends.ports import Executor
from batching.clock import MILLISECOND_NS, SECOND_NS
from models.spec import DeviceKind, InstanceGroup, ModelSpec
from tests.backends.builders import ScriptedExecutor, failing, model, tensor

DEFAULT = InstanceGroup(name="m", kind=DeviceKind.CPU, count=2, is_default_count=True)


class ParallelClock:
    """Time as threads see it that sleep at once: each has its own, which starts when the first thread last looked."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._first = threading.current_thread()
        self._seen_ns = 0
        self._latest_ns = 0

    def now_ns(self) -> int:
        if threading.current_thread() is self._first:
            self._seen_ns = self._latest_ns
            return self._seen_ns
        return max(self._seen_ns, getattr(self._own, "now_ns", 0))

    def sleep(self, duration_ns: int) -> None:
        self._own.now_ns = self.now_ns() + duration_ns
        self._latest_ns = max(self._latest_ns, self._own.now_ns)


class Machine:
    """Makes executors that take made-up times, and counts what becomes of them."""

    def __init__(self, run_ns: Callable[[int, int], int]) -> None:
        self.clock = ParallelClock()
        self.made: list[tuple[int, int]] = []
        self.is_open: list[bool] = []
        self._run_ns = run_ns  # of threads and rows

    def make(self, instances: int, threads: int) -> Sequence[Executor]:
        self.made.append((instances, threads))
        return [self._executor(threads) for _ in range(instances)]

    def plan(self, cache_dir: Path, spec: ModelSpec | None = None, cores: int = 2) -> CpuPlan:
        spec = spec or fake(cache_dir)
        return choose_plan(spec, cores=cores, cache_dir=cache_dir, make=self.make, clock=self.clock)

    def _executor(self, threads: int) -> Executor:
        place = len(self.is_open)
        self.is_open.append(False)
        computing = FakeExecutor(model(), service_ns=lambda rows: self._run_ns(threads, rows), sleep=self.clock.sleep)
        return ScriptedExecutor(
            model(),
            load=lambda: self.is_open.__setitem__(place, True),
            run=computing.run,
            close=lambda: self.is_open.__setitem__(place, False),
        )


def fake(directory: Path, content: bytes = b"weights", **changes: object) -> ModelSpec:
    (directory / "model.onnx").write_bytes(content)
    return replace(model(groups=[DEFAULT], file=directory / "model.onnx"), name="lite0", **changes)


def lite0(threads: int, rows: int) -> int:
    """As measured on two cores: the second thread helps little, and batches not at all."""
    return round(rows * (4.7 if threads == 1 else 3.1) * MILLISECOND_NS * (1 + rows / 50))


def scaling(threads: int, rows: int) -> int:
    """Threads that divide the work perfectly, and a batch costs hardly more than a row."""
    return (10 * MILLISECOND_NS + rows * MILLISECOND_NS) // threads


def figure(instances: int, threads: int, rows: int, rows_per_s: float) -> Figure:
    return Figure(Split(instances, threads), rows, rows_per_s)


@given(st.integers(1, 300))
def test_splits_go_from_one_instance_to_one_for_each_core_and_use_most_of_the_cores(cores: int):
    found = splits(cores)

    assert (found[0], found[-1]) == ((1, cores), (cores, 1))
    assert len(set(found)) == len(found) <= 2 + cores.bit_length()
    assert all(0.75 * cores <= instances * threads <= cores for instances, threads in found)


def test_splits_of_twelve_cores():
    assert splits(12) == [(1, 12), (2, 6), (4, 3), (12, 1)]


@pytest.mark.parametrize(
    ("figures", "best"),
    [
        pytest.param([figure(1, 2, 1, 318), figure(2, 1, 1, 422)], figure(2, 1, 1, 422), id="more rows a second"),
        pytest.param([figure(1, 2, 1, 405), figure(2, 1, 1, 422)], figure(1, 2, 1, 405), id="fewer instances in noise"),
        pytest.param([figure(2, 1, 8, 430), figure(2, 1, 1, 422)], figure(2, 1, 1, 422), id="smaller batch in noise"),
        pytest.param([figure(1, 2, 1, 200), figure(1, 2, 8, 300)], figure(1, 2, 8, 300), id="larger batch that pays"),
        pytest.param([figure(2, 1, 1, 90), figure(2, 1, 1, 300)], figure(2, 1, 1, 300), id="the better of two passes"),
        pytest.param([figure(1, 1, 1, 5)], figure(1, 1, 1, 5), id="the only one"),
    ],
)
def test_the_fewest_instances_within_the_margin_are_chosen(figures: list[Figure], best: Figure):
    assert decide(figures, margin=0.05) == best


def test_two_instances_of_one_thread_win_where_a_second_thread_helps_little(tmp_path: Path):
    plan = Machine(lite0).plan(tmp_path)

    assert (plan.instances, plan.threads, plan.best_rows) == (2, 1, 1)
    assert plan.rows_per_s == pytest.approx(2_000 / (4.7 * 1.02))
    assert plan.explanation.startswith(
        "model lite0: 2 instances x 1 thread: 417 rows/s at batch 1; 1 x 2: 316; measured in 0."
    )


def test_one_instance_wins_where_threads_divide_the_work(tmp_path: Path):
    plan = Machine(scaling).plan(tmp_path, cores=4)

    assert (plan.instances, plan.threads, plan.best_rows) == (1, 4, 8)


def test_small_models_are_measured_within_a_second_and_all_executors_closed(tmp_path: Path):
    machine = Machine(lite0)

    machine.plan(tmp_path)

    assert machine.clock.now_ns() < SECOND_NS
    assert machine.made == [(1, 2), (2, 1)] * 2
    assert machine.is_open == [False] * 6


def test_what_a_slow_model_cannot_do_in_five_seconds_is_left_out(tmp_path: Path):
    machine = Machine(lambda threads, rows: rows * SECOND_NS)

    plan = machine.plan(tmp_path, cores=8)

    assert machine.made == [(1, 8), (2, 4)]
    assert machine.clock.now_ns() <= 5 * SECOND_NS
    assert (plan.instances, plan.threads, plan.best_rows) == (2, 4, 1)


def test_one_figure_is_measured_however_slow_the_model_is(tmp_path: Path):
    plan = Machine(lambda threads, rows: rows * 10 * SECOND_NS).plan(tmp_path, cores=8)

    assert (plan.instances, plan.threads) == (1, 8)


def test_only_sizes_that_the_model_runs_are_measured(tmp_path: Path):
    sizes: set[int] = set()

    def run_ns(_threads: int, rows: int) -> int:
        sizes.add(rows)
        return rows * MILLISECOND_NS

    spec = fake(tmp_path)
    Machine(run_ns).plan(tmp_path, replace(spec, batching=replace(spec.batching, allowed_rows=(3, 6, 16))))

    assert sizes == {3, 6}


def test_a_plan_is_measured_once_and_told_from_the_cache_afterwards(tmp_path: Path):
    first = Machine(lite0).plan(tmp_path)
    later = Machine(scaling)

    second = later.plan(tmp_path)

    assert later.made == []
    assert replace(second, explanation=first.explanation) == first
    assert second.explanation.endswith("1 x 2: 316; measured at an earlier start")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"content": b"other weights"}, id="weights"),
        pytest.param({"parameters": {"enable_mem_arena": "0"}}, id="parameters"),
        pytest.param({"max_batch_rows": 4}, id="largest batch"),
        pytest.param({"backend": "onnxruntime"}, id="backend"),
    ],
)
def test_another_model_is_measured_again(tmp_path: Path, change: dict[str, object]):
    Machine(lite0).plan(tmp_path)
    later = Machine(scaling)

    later.plan(tmp_path, fake(tmp_path, **change))

    assert later.made


def test_other_cores_are_measured_again(tmp_path: Path):
    Machine(lite0).plan(tmp_path)

    assert Machine(scaling).plan(tmp_path, cores=4).threads == 4


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda text: b"", id="empty"),
        pytest.param(lambda text: text[:-10], id="cut off"),
        pytest.param(lambda text: text.replace(b'"instances":2', b'"instances":"2"'), id="type"),
        pytest.param(lambda text: text.replace(b'"instances":2', b'"instances":200'), id="too many"),
        pytest.param(lambda text: text.replace(b'"instances":2', b'"instances":-2'), id="negative"),
    ],
)
def test_a_damaged_cache_file_is_measured_again_and_mended(tmp_path: Path, damage: Callable[[bytes], bytes]):
    Machine(lite0).plan(tmp_path)
    (file,) = (tmp_path / "cpu-plans").iterdir()
    file.write_bytes(damage(file.read_bytes()))
    damaged, mended = Machine(lite0), Machine(lite0)

    plans = damaged.plan(tmp_path), mended.plan(tmp_path)

    assert [plan.instances for plan in plans] == [2, 2]
    assert (len(damaged.made), len(mended.made)) == (4, 0)
    assert list((tmp_path / "cpu-plans").iterdir()) == [file]


def test_passes_that_disagree_are_not_kept_and_the_line_says_so(tmp_path: Path):
    machine = Machine(lambda threads, rows: lite0(threads, rows) * (3 if len(machine.made) == 2 else 1))

    plan = machine.plan(tmp_path)

    assert "with doubtful results, so again at the next start" in plan.explanation
    assert not (tmp_path / "cpu-plans").exists()


def test_a_cache_that_cannot_be_written_costs_only_the_next_start(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "cpu-plans").write_text("a file where the directory should be")

    plan = Machine(lite0).plan(tmp_path)

    assert plan.instances == 2
    assert "cannot be written, it is measured again next time" in caplog.text


def test_the_plan_is_logged_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    with caplog.at_level("INFO"):
        plan = Machine(lite0).plan(tmp_path)

    assert caplog.messages == [plan.explanation]


@pytest.mark.parametrize(
    ("changes", "cores", "split", "reason"),
    [
        pytest.param({}, 1, (1, 1), "1 instance x 1 thread: not measured, there is 1 core", id="one core"),
        pytest.param(
            {"inputs": (tensor("x", dims=(-1,)),)},
            8,
            (2, 4),
            "2 instances x 4 threads: not measured, inputs have variable dims: x",
            id="variable dims",
        ),
    ],
)
def test_what_cannot_be_measured_gets_the_default_number_of_instances(
    tmp_path: Path, changes: dict[str, object], cores: int, split: tuple[int, int], reason: str
):
    machine = Machine(lite0)

    plan = machine.plan(tmp_path, fake(tmp_path, **changes), cores)

    assert (plan.instances, plan.threads) == split
    assert plan.explanation == f"model lite0: {reason}"
    assert machine.made == []


def test_a_model_that_does_not_run_on_zeros_gets_the_default(tmp_path: Path):
    closed: list[bool] = []

    def make(instances: int, threads: int) -> Sequence[Executor]:
        fails = failing(ExecutionError("no text"))
        return [ScriptedExecutor(model(), run=fails, close=lambda: closed.append(True)) for _ in range(instances)]

    plan = choose_plan(fake(tmp_path), cores=4, cache_dir=tmp_path, make=make, clock=ParallelClock())

    assert (plan.instances, plan.threads) == (2, 2)
    assert plan.explanation.endswith("not measured, it does not run on made-up input: no text")
    assert closed == [True]


def test_a_model_that_cannot_be_loaded_fails_as_it_would_when_it_is_started(tmp_path: Path):
    def make(instances: int, threads: int) -> Sequence[Executor]:
        return [ScriptedExecutor(model(), load=failing(LoadError("no such operator"))) for _ in range(instances)]

    with pytest.raises(LoadError, match="no such operator"):
        choose_plan(fake(tmp_path), cores=4, cache_dir=tmp_path, make=make, clock=ParallelClock())


@pytest.mark.parametrize(
    ("groups", "parameters", "is_left_open"),
    [
        pytest.param([DEFAULT], {}, True, id="nothing is said"),
        pytest.param([DEFAULT], {"intra_op_thread_count": "0", "x": "1"}, True, id="default number of threads"),
        pytest.param([replace(DEFAULT, is_default_count=False)], {}, False, id="count"),
        pytest.param([DEFAULT, replace(DEFAULT, name="n")], {}, False, id="two groups"),
        pytest.param([DEFAULT], {"intra_op_thread_count": "2"}, False, id="threads"),
        pytest.param([DEFAULT], {"inter_op_thread_count": "2"}, False, id="operators"),
    ],
)
def test_only_what_the_configuration_leaves_open_is_measured(
    groups: list[InstanceGroup], parameters: dict[str, str], is_left_open: bool
):
    assert is_open(model(groups=groups, **parameters)) is is_left_open
