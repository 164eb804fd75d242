"""Which executors serve a version, and batches through them, on a made-up GPU with a made-up TensorRT."""

import ctypes
import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from backends.errors import DeviceFaultError, ExecutionError, LoadError, OutOfMemoryError
from backends.ports import Executor, Placement
from backends.process.pinning import PinningExecutor
from backends.tensorrt_engine.bindings import check_version
from backends.tensorrt_engine.building import run_build
from backends.tensorrt_engine.executor import Tools, choose_executors, create_executors
from backends.tensorrt_engine.fake_api import FakeContext, FakeTensorRt
from backends.tensorrt_engine.fake_models import FakeModel, FakeTensor
from backends.tensorrt_engine.jobs import needs_build
from backends.tensorrt_engine.keys import Machine
from backends.tensorrt_engine.messages import with_logger
from backends.tensorrt_engine.store import EngineState, EngineStore
from backends.torch_engine.fake_device import FakeDevice
from batching.clock import MonotonicClock
from models.inference import Tensors
from models.spec import Accelerator, ExecutionSpec, ModelSpec
from tests.backends.tensorrt_builders import (
    MACHINE,
    OtherBackends,
    job,
    loaded,
    placement,
    plan,
    profile,
    rows,
    saved,
    tools,
    version,
)


def this_machine(_placement: Placement) -> Machine:
    return MACHINE


def lane(spec: ModelSpec, directory: Path, with_tools: Tools) -> Executor:
    """The first lane of the only instance, loaded."""
    return loaded(choose_executors(spec, placement(directory), with_tools))[0][0]


def answer(executor: Executor, inputs: Tensors) -> list[float]:
    """The first number of each row of the output."""
    outputs = executor.run(inputs, len(inputs["x"]))
    return [float(row[0]) for row in np.asarray(outputs["y"])]


def test_a_plan_answers_batches_of_every_size_in_every_lane(tmp_path: Path) -> None:
    spec = version(saved(tmp_path, plan=plan()))
    executors = loaded(choose_executors(spec, placement(tmp_path, instances=2), tools(FakeTensorRt())))

    for lanes in executors:
        for one in lanes:
            for count in (1, 5, 8):
                assert answer(one, rows(*range(count))) == list(range(count))


def test_instances_share_the_engine_and_have_a_context_each(tmp_path: Path) -> None:
    api = FakeTensorRt()
    spec = version(saved(tmp_path, plan=plan()))

    loaded(choose_executors(spec, placement(tmp_path, instances=3), tools(api)))

    assert (api.reads, len(api.contexts)) == (1, 3)


def test_a_batch_above_the_engines_largest_is_run_in_parts(tmp_path: Path) -> None:
    executor = lane(version(saved(tmp_path, plan=plan(most=2))), tmp_path, tools(FakeTensorRt()))

    assert answer(executor, rows(1, 2, 3, 4, 5)) == [1, 2, 3, 4, 5]


def test_a_batch_below_the_engines_smallest_is_padded(tmp_path: Path) -> None:
    static = FakeModel(inputs=(FakeTensor(name="x", shape=(4, 2)),), outputs=(FakeTensor(name="y", shape=(4, 2)),))
    api = FakeTensorRt()
    executor = lane(version(saved(tmp_path, plan=static)), tmp_path, tools(api))

    assert answer(executor, rows(1, 2, 3)) == [1, 2, 3]
    assert answer(executor, rows(*range(7))) == list(range(7))
    assert api.contexts[0].shapes == {"x": (4, 2)}


def test_padding_repeats_the_last_row_so_that_nothing_left_over_is_computed(tmp_path: Path) -> None:
    api, device, seen = FakeTensorRt(), FakeDevice(), []
    executor = lane(version(saved(tmp_path, plan=plan(least=4))), tmp_path, tools(api, device=device))
    execute = api.execute

    def watched(context: FakeContext, handle: int) -> None:
        address = context.addresses["x"]
        device.launch(lambda: seen.append(np.frombuffer(ctypes.string_at(address, 32), np.float32).tolist()))
        execute(context, handle)

    api.execute = watched
    executor.run(rows(1, 2), 2)

    assert seen == [[1, 1, 2, 2, 2, 2, 2, 2]]


def test_staged_inputs_are_run_from_where_they_are(tmp_path: Path) -> None:
    device = FakeDevice()
    executor = lane(version(saved(tmp_path, plan=plan())), tmp_path, tools(FakeTensorRt(), device=device))

    staged = executor.stage("x", (3, 2), np.dtype(np.float32))  # type: ignore[attr-defined]
    staged[:] = rows(7, 8, 9)["x"]

    assert answer(executor, {"x": staged}) == [7, 8, 9]
    assert device.staged_bytes == 0


def test_staged_inputs_survive_padding_and_cutting(tmp_path: Path) -> None:
    executor = lane(version(saved(tmp_path, plan=plan(least=4, most=4))), tmp_path, tools(FakeTensorRt()))

    for count in (3, 10):
        staged = executor.stage("x", (count, 2), np.dtype(np.float32))  # type: ignore[attr-defined]
        staged[:] = rows(*range(count))["x"]
        assert answer(executor, {"x": staged}) == list(range(count))


def test_a_model_without_batch_dimension_runs_whole_requests(tmp_path: Path) -> None:
    whole = FakeModel(inputs=(FakeTensor(name="x", shape=(2,)),), outputs=(FakeTensor(name="y", shape=(2,)),))
    executor = lane(version(saved(tmp_path, plan=whole), max_batch_rows=0), tmp_path, tools(FakeTensorRt()))

    outputs = executor.run({"x": np.array([3, 4], np.float32)}, 1)

    assert outputs["y"].tolist() == [3, 4]


def test_the_profile_for_the_largest_batches_is_chosen_in_every_context(tmp_path: Path) -> None:
    api = FakeTensorRt()
    several = FakeModel(profiles=(profile(1, 1, 1), profile(1, 8, 8)))

    executor = lane(version(saved(tmp_path, plan=several)), tmp_path, tools(api))

    assert [context.profile for context in api.contexts] == [1]
    assert answer(executor, rows(1, 2, 3)) == [1, 2, 3]


def test_graphs_of_all_warmed_sizes_answer_as_the_engine_does(tmp_path: Path) -> None:
    device = FakeDevice()
    spec = version(saved(tmp_path, plan=plan()), allowed_rows=(1, 4, 8), graphs=True)
    executor = lane(spec, tmp_path, tools(FakeTensorRt(), device=device))
    executor.warm_up((1, 4, 8))

    answers = [answer(executor, rows(*range(count))) for count in (1, 4, 8, 4)]

    assert answers == [list(range(count)) for count in (1, 4, 8, 4)]
    assert device.replays == 4


def test_every_graph_has_a_context_of_its_own_and_all_share_their_scratch_memory(tmp_path: Path) -> None:
    api, device = FakeTensorRt(), FakeDevice()
    spec = version(saved(tmp_path, plan=plan()), allowed_rows=(1, 4, 8), graphs=True)
    executor = lane(spec, tmp_path, tools(api, device=device))
    executor.warm_up((1, 4, 8))

    answer(executor, rows(1, 2))  # a size without a graph

    assert [context.shapes["x"] for context in api.contexts] == [(2, 2), (8, 2), (4, 2), (1, 2)]
    assert len({context.memory for context in api.contexts}) == 1


def test_sizes_that_the_engine_does_not_take_are_warmed_up_as_it_takes_them(tmp_path: Path) -> None:
    api = FakeTensorRt()
    executor = lane(version(saved(tmp_path, plan=plan(least=2, most=4))), tmp_path, tools(api))
    seen: list[tuple[int, ...]] = []
    execute = api.execute
    api.execute = lambda context, handle: (seen.append(context.shapes["x"]), execute(context, handle))[1]

    executor.warm_up((1, 2, 4, 8))

    assert seen == [(4, 2), (2, 2)]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[defaultAllocator.cpp::allocateAsync::48] Error Code 1: Cuda Runtime (out of memory)", OutOfMemoryError),
        ("Error Code 1: Cuda Runtime (an illegal memory access was encountered)", DeviceFaultError),
        ("Error Code 1: Cuda Driver (CUDA_ERROR_LAUNCH_FAILED)", DeviceFaultError),
        ("Error Code 3: API Usage Error (no such tensor)", ExecutionError),
    ],
)
def test_a_failed_batch_raises_what_its_text_stands_for(tmp_path: Path, text: str, kind: type[ExecutionError]) -> None:
    api = FakeTensorRt()
    executor = lane(version(saved(tmp_path, plan=plan())), tmp_path, tools(api))
    api.failure = text

    with pytest.raises(ExecutionError, match="TensorRT refuses the batch: Error Code") as caught:
        executor.run(rows(1), 1)

    assert type(caught.value) is kind
    assert "defaultAllocator" not in str(caught.value)


def test_after_a_failed_batch_the_next_one_is_answered(tmp_path: Path) -> None:
    api, device = FakeTensorRt(), FakeDevice()
    executor = lane(version(saved(tmp_path, plan=plan())), tmp_path, tools(api, device=device))
    api.failure = "out of memory"
    with pytest.raises(OutOfMemoryError):
        executor.run(rows(1), 1)

    api.failure = ""

    assert answer(executor, rows(1)) == [1]
    assert device.freed_cache == 1


def test_a_shape_outside_of_the_profile_is_an_error_of_the_batch(tmp_path: Path) -> None:
    executor = lane(version(saved(tmp_path, plan=plan())), tmp_path, tools(FakeTensorRt()))

    with pytest.raises(ExecutionError, match=r"TensorRT refuses input 'x' of shape \(1, 3\)"):
        executor.run({"x": np.zeros((1, 3), np.float32)}, 1)


def test_no_memory_for_a_context_is_a_load_error(tmp_path: Path) -> None:
    api = FakeTensorRt()
    (lanes,) = choose_executors(version(saved(tmp_path, plan=plan())), placement(tmp_path), tools(api))
    api.failure = "out of memory"

    with pytest.raises(LoadError, match="cannot make an execution context: out of memory"):
        lanes[0].load()


def test_no_memory_for_the_largest_size_leaves_the_smaller_ones_in_service(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    api = FakeTensorRt()
    executor = lane(version(saved(tmp_path, plan=plan())), tmp_path, tools(api))
    execute = api.execute

    def limited(context, handle) -> None:  # type: ignore[no-untyped-def]
        if context.shapes["x"][0] > 4:
            raise MemoryError("CUDA out of memory")
        execute(context, handle)

    api.execute = limited
    executor.warm_up((1, 8))

    assert "no memory for batches of 8 rows" in caplog.text
    assert answer(executor, rows(1, 2)) == [1, 2]


def test_page_locked_inputs_are_copied_from_where_they_are(tmp_path: Path) -> None:
    device = FakeDevice()
    executor = lane(version(saved(tmp_path, plan=plan())), tmp_path, tools(FakeTensorRt(), device=device))
    assert isinstance(executor, PinningExecutor)
    slot = rows(1, 2, 3)["x"]

    executor.pin_memory(slot.ctypes.data, slot.nbytes)
    slot[:] = rows(4, 5, 6)["x"]
    answers = answer(executor, {"x": slot})
    executor.unpin_memory(slot.ctypes.data)

    assert answers == [4, 5, 6]
    assert device.staged_bytes == 0


def test_a_device_that_breaks_in_the_warm_up_is_a_fault_of_the_device(tmp_path: Path) -> None:
    api = FakeTensorRt()
    executor = lane(version(saved(tmp_path, plan=plan())), tmp_path, tools(api))
    api.failure = "an illegal memory access was encountered"

    with pytest.raises(DeviceFaultError, match="illegal memory access"):
        executor.warm_up((1, 8))


def test_an_engine_that_does_not_run_in_the_warm_up_is_a_load_error(tmp_path: Path) -> None:
    api = FakeTensorRt()
    executor = lane(version(saved(tmp_path, plan=plan())), tmp_path, tools(api))
    api.failure = "Error Code 3: API Usage Error"

    with pytest.raises(LoadError, match="does not run on 8 rows of zeros: TensorRT refuses the batch: Error Code 3"):
        executor.warm_up((1, 8))


def test_an_output_whose_shape_depends_on_the_data_is_refused(tmp_path: Path) -> None:
    unknown = FakeModel(outputs=(FakeTensor(name="y", shape=(-1, -1)),), profiles=(profile(1, 8, 8),))
    api = FakeTensorRt(unknown_shape=(-1, -1))
    executor = lane(version(saved(tmp_path, plan=unknown)), tmp_path, tools(api))

    with pytest.raises(ExecutionError, match="TensorRT refuses output 'y', whose shape depends on the data"):
        executor.run(rows(1), 1)


def test_a_closed_executor_says_so(tmp_path: Path) -> None:
    executor = lane(version(saved(tmp_path, plan=plan())), tmp_path, tools(FakeTensorRt()))

    executor.close()
    executor.close()

    with pytest.raises(ExecutionError, match="not loaded"):
        executor.run(rows(1), 1)


def test_a_plan_of_another_version_without_an_onnx_file_is_refused_naming_both(tmp_path: Path) -> None:
    spec = version(saved(tmp_path, plan=plan(version="10.9.0")))

    with pytest.raises(LoadError, match=r"TensorRT 10\.9\.0, this is TensorRT 11\.4\.0 .* put the ONNX file"):
        choose_executors(spec, placement(tmp_path), tools(FakeTensorRt()))


def test_a_stale_plan_is_served_by_another_backend_until_its_engine_is_built(tmp_path: Path) -> None:
    api, others = FakeTensorRt(), OtherBackends()
    spec = version(saved(tmp_path, plan=plan(version="10.9.0"), onnx=FakeModel()))
    with_tools = tools(api, others=others)

    meanwhile = lane(spec, tmp_path, with_tools)
    assert answer(meanwhile, rows(1, 2)) == [1, 2]
    assert (others.asked[-1].backend, others.asked[-1].file.name, api.builds) == ("onnxruntime", "model.onnx", 0)

    run_build(with_tools.library, job(spec, tmp_path), MonotonicClock())
    replaced = lane(spec, tmp_path, with_tools)

    assert answer(replaced, rows(1, 2)) == [1, 2]
    assert (api.builds, len(api.contexts)) == (1, 1)


def test_another_backend_serves_an_onnx_file_without_an_engine(tmp_path: Path) -> None:
    others = OtherBackends("onnxruntime")
    (tmp_path / "model.pt").write_bytes(b"")
    spec = version(saved(tmp_path, onnx=FakeModel()), allow_tf32="false", precision="fp16")

    lane(spec, tmp_path, tools(FakeTensorRt(), others=others))

    served = others.asked[-1]
    assert (served.backend, served.file.name, dict(served.parameters)) == ("pytorch", "model.pt", {"precision": "fp16"})


def test_no_other_backend_is_told_to_build_engines_itself(tmp_path: Path) -> None:
    others = OtherBackends()
    spec = version(saved(tmp_path, onnx=FakeModel()))
    accelerated = ExecutionSpec(gpu_accelerators=(Accelerator(name="tensorrt"),))

    lane(replace(spec, execution=accelerated), tmp_path, tools(FakeTensorRt(), others=others))

    assert others.asked[-1].execution.gpu_accelerators == ()


def test_without_another_backend_the_engine_is_built_first(tmp_path: Path) -> None:
    api = FakeTensorRt()
    spec = version(saved(tmp_path, onnx=FakeModel()))

    executor = lane(spec, tmp_path, tools(api, others=OtherBackends("onnxruntime", "pytorch")))

    assert answer(executor, rows(1)) == [1]
    assert api.builds == 1


def test_nothing_is_built_while_an_engine_serves(tmp_path: Path) -> None:
    api = FakeTensorRt()
    spec = version(saved(tmp_path, onnx=FakeModel()), graphs=True)
    run_build(with_logger(api), job(spec, tmp_path), MonotonicClock())
    executor = lane(spec, tmp_path, tools(api))
    executor.warm_up((1, 8))

    for count in range(1, 9):
        executor.run(rows(*range(count)), count)

    assert api.builds == 1


def test_a_cached_engine_that_tensorrt_refuses_is_dropped(tmp_path: Path) -> None:
    others = OtherBackends()
    spec = version(saved(tmp_path, onnx=FakeModel()))
    store, key = EngineStore(tmp_path / "cache", MACHINE), job(spec, tmp_path).key
    store.save(key, plan(compute="8.6").to_bytes())

    lane(spec, tmp_path, tools(FakeTensorRt(), others=others))

    assert others.asked[-1].backend == "onnxruntime"
    assert store.state(key) is EngineState.MISSING


def test_the_cpu_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="runs on NVIDIA GPUs only, found an instance on the CPU; set its kind"):
        create_executors(version(tmp_path / "model.plan"), Placement(device="cpu"))


@pytest.mark.skipif(importlib.util.find_spec("tensorrt") is not None, reason="TensorRT is installed")
def test_a_missing_tensorrt_is_a_load_error_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"TensorRT cannot be imported .*run `make setup-gpu`"):
        create_executors(version(tmp_path / "model.plan"), placement(tmp_path))


def test_a_tensorrt_that_is_too_old_is_refused() -> None:
    with pytest.raises(LoadError, match=r"found TensorRT 8\.6\.1, expected 10\.7 or later"):
        check_version(FakeTensorRt(version="8.6.1"))
    check_version(FakeTensorRt(version="10.7.0"))


def test_a_job_is_due_until_the_engine_is_built(tmp_path: Path) -> None:
    spec = version(saved(tmp_path, onnx=FakeModel()))

    due = needs_build(spec, placement(tmp_path), this_machine)
    assert due is not None
    run_build(with_logger(FakeTensorRt()), due, MonotonicClock())

    assert needs_build(spec, placement(tmp_path), this_machine) is None


def test_a_plan_is_due_once_it_was_refused(tmp_path: Path) -> None:
    spec = version(saved(tmp_path, plan=plan(version="10.9.0"), onnx=FakeModel()))

    before = needs_build(spec, placement(tmp_path), this_machine)
    lane(spec, tmp_path, tools(FakeTensorRt()))
    after = needs_build(spec, placement(tmp_path), this_machine)

    assert before is None
    assert after is not None
    assert after.reason == f"'model.plan' is not for {MACHINE.describe()}"


def test_without_tensorrt_or_an_onnx_file_nothing_is_due(tmp_path: Path) -> None:
    onnx = version(saved(tmp_path, onnx=FakeModel()))
    assert needs_build(onnx, placement(tmp_path), lambda placement: None) is None

    (tmp_path / "model.onnx").unlink()
    assert needs_build(version(saved(tmp_path, plan=plan())), placement(tmp_path), this_machine) is None
