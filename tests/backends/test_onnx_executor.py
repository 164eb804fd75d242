"""ONNX Runtime: strings, signatures, threads, error texts, and the session that instances share."""

import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from backends.errors import ExecutionError, LoadError, OutOfMemoryError
from backends.onnx_engine.executor import OnnxExecutor, check_installation, create_executors
from backends.onnx_engine.session import SharedSession
from backends.ports import Executor, Placement
from models.spec import ModelSpec
from models.tensors import DataType, TensorSpec
from tests.backends.builders import POISON, model, payload, save_lookup, save_onnx, tensor

HAS_CUDA = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
PROC = Path("/proc/self/status")
IDENTITY = helper.make_node("Identity", ["x"], ["y"])


def onnx_model(file: Path, **changes: Any) -> ModelSpec:
    return model(backend="onnxruntime", file=file, **changes)


def lookup(directory: Path, **changes: Any) -> ModelSpec:
    return onnx_model(save_lookup(directory / "model.onnx"), **changes)


def loaded(spec: ModelSpec) -> Executor:
    ((executor,),) = create_executors(spec, Placement())
    executor.load()
    return executor


def strings(directory: Path, operator: str = "Identity", y: int = TensorProto.STRING, **attributes: int) -> ModelSpec:
    node = helper.make_node(operator, ["x"], ["y"], **attributes)
    file = save_onnx(directory / "model.onnx", [node], x=(TensorProto.STRING, ["N", 2]), y=(y, ["N", 2]))
    output = DataType.BYTES if y == TensorProto.STRING else DataType.FP32
    return onnx_model(file, inputs=[tensor("x", DataType.BYTES)], outputs=[tensor("y", output)])


def test_bytes_go_in_and_come_out_as_bytes(tmp_path: Path):
    texts = np.array([[b"", "Käse".encode()], [b"a\0b", b"'"]], np.object_)

    outputs = loaded(strings(tmp_path)).run({"x": texts}, 2)

    assert outputs["y"].tolist() == texts.tolist()


def test_bytes_that_are_not_text_are_refused_by_name(tmp_path: Path):
    with pytest.raises(ExecutionError, match="input 'x' holds bytes that are not UTF-8"):
        loaded(strings(tmp_path)).run({"x": np.array([[b"\xff", b""]], np.object_)}, 1)


def test_strings_are_warmed_up_with_empty_ones(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    loaded(strings(tmp_path)).warm_up([1, 2])

    assert caplog.records == []


def test_a_model_that_parses_its_strings_loads_without_being_warmed_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    executor = loaded(strings(tmp_path, "Cast", TensorProto.FLOAT, to=TensorProto.FLOAT))

    executor.warm_up([1])

    assert "model 'm' version 1: not warmed up, it does not run on empty strings" in caplog.text
    assert executor.run({"x": np.array([[b"1.5", b"2"]], np.object_)}, 1)["y"].tolist() == [[1.5, 2.0]]


def test_what_one_instance_has_warmed_up_the_others_do_not_run_again(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    executors = create_executors(
        strings(tmp_path, "Cast", TensorProto.FLOAT, to=TensorProto.FLOAT), Placement(instances=2, cores=1)
    )

    for (executor,) in executors:
        executor.load()
        executor.warm_up([1])

    assert len(caplog.records) == 1  # one says that it could not


def test_variable_dims_are_not_warmed_up_and_a_log_line_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    file = save_onnx(
        tmp_path / "model.onnx",
        [helper.make_node("Reshape", ["x", "shape"], ["y"])],  # takes rows of 2, 4, 6, ... numbers only
        x=(TensorProto.INT64, ["N", "M"]),
        y=(TensorProto.INT64, ["K", 2]),
        constants=[("shape", np.array([-1, 2]))],
    )
    executor = loaded(onnx_model(file, inputs=[tensor("x", dims=(-1,))]))

    with caplog.at_level("INFO"):
        executor.warm_up([1])

    assert "model 'm' version 1: no warm-up, inputs have variable dims: x" in caplog.text
    assert executor.run({"x": np.array([[1, 2]])}, 1)["y"].tolist() == [[1, 2]]


def test_a_model_that_cannot_run_the_declared_batch_does_not_load(tmp_path: Path):
    executor = loaded(onnx_model(save_onnx(tmp_path / "model.onnx", [IDENTITY], x=(TensorProto.INT64, [1, 2]))))

    executor.warm_up([1])

    with pytest.raises(
        LoadError, match=r"model 'm' version 1: does not run on 4 rows of the declared inputs: .*Got: 4"
    ):
        executor.warm_up([4])


def test_a_model_without_batch_dimension_is_warmed_up_with_the_declared_shape(tmp_path: Path):
    file = save_onnx(tmp_path / "model.onnx", [IDENTITY], x=(TensorProto.INT64, [3]), y=(TensorProto.INT64, [3]))
    executor = loaded(onnx_model(file, inputs=[tensor("x", dims=(3,))], max_batch_rows=0))

    executor.warm_up([1])

    assert executor.run({"x": np.array([1, 2, 3])}, 1)["y"].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("inputs", "outputs", "text"),
    [
        pytest.param([tensor("image")], [tensor("y")], "input 'image' is declared, the file has x", id="input"),
        pytest.param([tensor("x")], [tensor("scores")], "output 'scores' is declared, the file has y", id="output"),
        pytest.param(
            [tensor("x", DataType.FP32)], [tensor("y")], r"'x' is tensor\(int64\), declared TYPE_FP32", id="type"
        ),
        pytest.param([], [tensor("y")], "needs inputs that are not declared: x", id="undeclared"),
    ],
)
def test_a_file_with_another_signature_is_refused(
    tmp_path: Path, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], text: str
):
    with pytest.raises(LoadError, match=f"^model 'm' version 1: .*{text}"):
        loaded(lookup(tmp_path, inputs=inputs, outputs=outputs))


def broken(file: Path) -> None:
    file.write_bytes(b"not a model")


def unknown_operator(file: Path) -> None:
    save_onnx(file, [helper.make_node("Nope", ["x"], ["y"])])


def contradiction(file: Path) -> None:
    save_onnx(file, [IDENTITY], y=(TensorProto.FLOAT, ["N", 2]))


@pytest.mark.parametrize(
    ("write", "text"),
    [
        pytest.param(lambda file: None, "m/1/model.onnx.*exist", id="no file"),
        pytest.param(broken, "m/1/model.onnx.*Protobuf parsing failed", id="not a model"),
        pytest.param(unknown_operator, "m/1/model.onnx.*Nope", id="unknown operator"),
        pytest.param(contradiction, "m/1/model.onnx.*Type", id="contradicting types"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_named_without_this_machines_paths(
    tmp_path: Path, write, text: str, capfd: pytest.CaptureFixture[str]
):
    write(tmp_path / "model.onnx")

    with pytest.raises(LoadError, match=f"^model 'm' version 1: .*{text}") as caught:
        loaded(onnx_model(tmp_path / "model.onnx"))

    assert str(tmp_path) not in str(caught.value)
    assert "onnxruntime_src" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_a_failing_run_tells_the_engines_reason_and_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    with pytest.raises(ExecutionError, match="indices element out of data bounds, idx=-9999") as caught:
        loaded(lookup(tmp_path)).run(payload(POISON), 1)

    assert "/" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_instances_share_one_session_until_the_last_one_closes(tmp_path: Path):
    spec = lookup(tmp_path)
    (first,), (second,) = create_executors(spec, Placement(instances=2, cores=1))

    first.load()
    spec.file.unlink()
    second.load()
    first.close()

    assert second.run(payload(4), 1)["y"].tolist() == [[4, 4]]
    second.close()
    with pytest.raises(LoadError, match="exist"):
        first.load()


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads by Linux's proc file system")
@pytest.mark.parametrize(
    ("parameters", "budget_cores", "extra_threads"),
    [
        pytest.param({}, 4, 1, id="half of the budget for each of two"),
        pytest.param({}, 1, 0, id="at least one"),
        pytest.param({"intra_op_thread_count": "0"}, 6, 2, id="zero means default"),
        pytest.param({"intra_op_thread_count": "4"}, 1, 3, id="intra"),
        pytest.param({"inter_op_thread_count": "3"}, 1, 2, id="inter"),
    ],
)
def test_a_session_has_the_threads_of_its_budget_or_parameters(
    tmp_path: Path, parameters: dict[str, str], budget_cores: int, extra_threads: int
):
    (first,), (second,) = create_executors(lookup(tmp_path, **parameters), Placement(instances=2, cores=budget_cores))
    before = len(list(Path("/proc/self/task").iterdir()))

    first.load()
    second.load()

    assert len(list(Path("/proc/self/task").iterdir())) - before == extra_threads


@pytest.mark.parametrize("text", ["two", "-1", "1.5", ""])
@pytest.mark.parametrize("parameter", ["intra_op_thread_count", "inter_op_thread_count"])
def test_a_bad_number_of_threads_is_refused(tmp_path: Path, parameter: str, text: str):
    with pytest.raises(LoadError, match=f"model 'm': parameter '{parameter}' is '{text}', expected a number"):
        create_executors(lookup(tmp_path, **{parameter: text}), Placement())


def test_two_builds_of_the_runtime_in_one_environment_are_refused_with_the_mending():
    with pytest.raises(LoadError, match="pip uninstall onnxruntime onnxruntime-gpu"):
        check_installation(installed=lambda distribution: True)


@pytest.mark.parametrize("only", ["onnxruntime", "onnxruntime-gpu"])
def test_one_build_of_the_runtime_is_fine(only: str):
    check_installation(installed=only.__eq__)


@pytest.mark.skipif(HAS_CUDA, reason="this build of ONNX Runtime can use GPUs")
def test_a_build_without_gpus_says_what_a_model_on_a_gpu_needs(tmp_path: Path):
    with pytest.raises(LoadError, match=r"needs CUDAExecutionProvider, .*; install onnxruntime-gpu"):
        create_executors(lookup(tmp_path), Placement(device="gpu0"))


def test_instances_with_sessions_of_their_own_load_the_file_each(tmp_path: Path):
    spec = lookup(tmp_path, share_session_between_instances="0")
    (first,), (second,) = create_executors(spec, Placement(instances=2))
    first.load()
    spec.file.unlink()

    with pytest.raises(LoadError, match="exist"):
        second.load()


@pytest.mark.parametrize(
    "parameters",
    [
        pytest.param({"enable_mem_arena": "0"}, id="no arena"),
        pytest.param({"enable_mem_pattern": "0"}, id="no pattern"),
        pytest.param({"memory.enable_memory_arena_shrinkage": "cpu:0"}, id="shrinking arena"),
        pytest.param({"execution_mode": "1"}, id="parallel"),
        pytest.param({"session.use_device_allocator_for_initializers": "1"}, id="allocator"),
    ],
)
def test_parameters_of_memory_and_order_change_no_answer(tmp_path: Path, parameters: dict[str, str]):
    executor = loaded(lookup(tmp_path, **parameters))

    assert executor.run(payload(3, 4), 2)["y"].tolist() == [[3, 3], [4, 4]]


def test_a_parameter_for_each_run_reaches_the_engine(tmp_path: Path):
    executor = loaded(lookup(tmp_path, **{"memory.enable_memory_arena_shrinkage": "gpu:0"}))

    with pytest.raises(ExecutionError, match="arena"):  # this session has none on a GPU
        executor.run(payload(1), 1)


def test_lack_of_memory_is_told_apart(tmp_path: Path):
    file = save_onnx(
        tmp_path / "model.onnx",
        [helper.make_node("ConstantOfShape", ["x"], ["y"])],
        x=(TensorProto.INT64, ["N"]),
        y=(TensorProto.FLOAT, ["A", "B"]),
    )
    executor = loaded(onnx_model(file, inputs=[tensor("x", dims=())], outputs=[tensor("y", DataType.FP32)]))

    with pytest.raises(
        OutOfMemoryError, match="Failed to allocate memory for requested buffer of size 4611686018427387904"
    ):
        executor.run({"x": np.array([1 << 30, 1 << 30])}, 2)

    assert executor.run({"x": np.array([2, 1])}, 2)["y"].tolist() == [[0.0], [0.0]]


def bound(spec: ModelSpec) -> Executor:
    """As on a GPU, but on the CPU: binding is the engine's and knows no difference."""
    executor = OnnxExecutor(spec, SharedSession(lambda: onnxruntime.InferenceSession(spec.file)), binds=True)
    executor.load()
    return executor


def test_bound_inputs_and_outputs_give_the_same_answers(tmp_path: Path):
    executor = bound(lookup(tmp_path))

    answers = [executor.run(payload(*rows), len(rows))["y"] for rows in ([1, 2, 3], [4], [5, 6])]

    assert [answer[:, 0].tolist() for answer in answers] == [[1, 2, 3], [4], [5, 6]]


def test_a_bound_batch_that_fails_leaves_nothing_behind(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    executor = bound(lookup(tmp_path))

    with pytest.raises(ExecutionError, match="idx=-9999"):
        executor.run(payload(POISON), 1)

    assert executor.run(payload(7), 1)["y"].tolist() == [[7, 7]]


def test_a_bound_executor_keeps_no_inputs_alive(tmp_path: Path):
    executor = bound(lookup(tmp_path))
    rows = np.array([[8, 8]])
    alive = weakref.ref(rows)
    executor.run({"x": rows}, 1)

    del rows

    assert alive() is None


def test_strings_are_handed_over_because_they_cannot_be_bound(tmp_path: Path):
    outputs = bound(strings(tmp_path)).run({"x": np.array([[b"a", b"b"]], np.object_)}, 1)

    assert outputs["y"].tolist() == [[b"a", b"b"]]


def test_runs_of_sizes_that_were_not_warmed_up_are_counted(tmp_path: Path):
    (lane,) = create_executors(lookup(tmp_path), Placement())[0]
    assert isinstance(lane, OnnxExecutor)
    lane.load()
    lane.warm_up([1, 2])

    for rows in (1, 2, 3, 2):
        lane.run(payload(*range(rows)), rows)

    assert lane.unwarmed_runs == 1


def resident_bytes() -> int:
    (line,) = [line for line in PROC.read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) * 1024


@pytest.mark.skipif(not PROC.is_file(), reason="reads memory from Linux's proc file system")
def test_memory_is_flat_under_random_sizes(tmp_path: Path):
    weights = np.full((16, 3, 3, 3), 0.01, np.float32)
    file = save_onnx(
        tmp_path / "model.onnx",
        [helper.make_node("Conv", ["x", "w"], ["z"]), helper.make_node("GlobalMaxPool", ["z"], ["y"])],
        x=(TensorProto.FLOAT, ["N", 3, 64, 64]),
        y=(TensorProto.FLOAT, ["N", 16, 1, 1]),
        constants=[("w", weights)],
    )
    image, pooled = tensor("x", DataType.FP32, (3, 64, 64)), tensor("y", DataType.FP32, (16, 1, 1))
    executor = loaded(onnx_model(file, inputs=[image], outputs=[pooled]))
    executor.warm_up(range(1, 33))
    images = np.ones((32, 3, 64, 64), np.float32)
    sizes = np.random.default_rng(1)
    warm_bytes = resident_bytes()

    for _ in range(300):
        rows = int(sizes.integers(1, 33))
        executor.run({"x": images[:rows]}, rows)

    assert resident_bytes() - warm_bytes < 8 << 20  # a batch of 32 rows takes as much
