"""Lanes on a device whose work runs only when, and as far as, somebody waits for it."""

import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from backends.torch_engine.device import Stream
from backends.torch_engine.fake_device import WORK_NS, FakeBuffer, FakeDevice, Order
from backends.torch_engine.lanes import Buffers, DeviceInstance, DeviceLane


class Doubling:
    """y = 2 x, and how often it was asked to compute."""

    def __init__(self, device: FakeDevice) -> None:
        self._device = device
        self.calls = 0

    def compute(self, inputs: Buffers, stream: Stream) -> Buffers:
        self.calls += 1
        source = inputs["x"]
        assert isinstance(source, FakeBuffer)
        target = FakeBuffer(np.empty(source.shape, source.dtype))

        def kernel() -> None:
            target.array[...] = 2 * source.array

        self._device.launch(kernel)
        return {"y": target}

    def for_recording(self) -> "Doubling":
        return self


def rows(count: int, start: int = 0) -> np.ndarray:
    return np.arange(start, start + 4 * count, dtype=np.float32).reshape(count, 4)


def lanes(device: FakeDevice, program: Doubling, count: int = 2) -> list[DeviceLane]:
    instance = DeviceInstance(device, program)
    return [DeviceLane(device, instance) for _ in range(count)]


@pytest.fixture(params=Order, ids=lambda order: order.name.lower())
def device(request: pytest.FixtureRequest) -> FakeDevice:
    return FakeDevice(request.param)


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns all the time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def program(device: FakeDevice) -> Doubling:
    return Doubling(device)


def test_copies_and_computation_wait_for_each_other(device: FakeDevice, program: Doubling):
    (lane,) = lanes(device, program, 1)

    for count in (3, 1, 5, 2):
        np.testing.assert_array_equal(lane.run({"x": rows(count)})["y"], 2 * rows(count))


def test_answers_stay_when_the_memory_is_used_again(device: FakeDevice, program: Doubling):
    (lane,) = lanes(device, program, 1)

    first = lane.run({"x": rows(2)})["y"]
    lane.run({"x": rows(2, start=50)})

    np.testing.assert_array_equal(first, 2 * rows(2))


def test_smaller_batches_use_the_memory_of_larger_ones(device: FakeDevice, program: Doubling):
    (lane,) = lanes(device, program, 1)

    for count in (8, 3, 1, 8, 5):
        lane.run({"x": rows(count)})

    assert device.allocations == [rows(8).nbytes]


@pytest.mark.usefixtures("restless")
@pytest.mark.parametrize("is_recorded", [False, True], ids=["launched", "recorded"])
def test_lanes_of_an_instance_do_not_disturb_each_other(device: FakeDevice, program: Doubling, is_recorded: bool):
    pair = lanes(device, program)
    if is_recorded:
        pair[0].record({"x": rows(2)})
    failures: list[object] = []

    def work(lane: DeviceLane, start: int) -> None:
        for step in range(start, start + 200):
            found = lane.run({"x": rows(2, step)})["y"]
            if not np.array_equal(found, 2 * rows(2, step)):
                failures.append((step, found))

    threads = [threading.Thread(target=work, args=(lane, 1_000 * n)) for n, lane in enumerate(pair)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not failures


def test_recorded_sizes_are_replayed_and_others_computed(device: FakeDevice, program: Doubling):
    (lane,) = lanes(device, program, 1)
    for count in (4, 2):
        lane.record({"x": rows(count)})
    recorded = program.calls

    answers = {count: lane.run({"x": rows(count, 7)})["y"] for count in (2, 3, 4)}

    for count, answer in answers.items():
        np.testing.assert_array_equal(answer, 2 * rows(count, 7))
    assert device.replays == 2
    assert program.calls == recorded + 1


def test_a_size_is_recorded_once_for_all_lanes(device: FakeDevice, program: Doubling):
    pair = lanes(device, program)

    pair[0].record({"x": rows(2)})
    recorded = program.calls
    pair[1].record({"x": rows(2)})

    assert program.calls == recorded


def test_the_order_of_the_inputs_does_not_matter_to_a_recording(device: FakeDevice, program: Doubling):
    (lane,) = lanes(device, program, 1)
    lane.record({"x": rows(2), "other": rows(2)})

    lane.run({"other": rows(2), "x": rows(2)})

    assert device.replays == 1


def test_page_locked_inputs_are_not_staged(device: FakeDevice, program: Doubling):
    (lane,) = lanes(device, program, 1)
    slot = np.zeros((8, 4), np.float32)
    lane.pin(slot.ctypes.data, slot.nbytes)
    slot[:3] = rows(3)

    answer = lane.run({"x": slot[:3]})["y"]
    slot[:3] = -1

    np.testing.assert_array_equal(answer, 2 * rows(3))
    assert slot.ctypes.data in device.copied_from


def test_other_inputs_are_copied_through_page_locked_memory(device: FakeDevice, program: Doubling):
    (lane,) = lanes(device, program, 1)
    slot = rows(3)
    lane.pin(slot.ctypes.data, slot.nbytes)
    lane.unpin(slot.ctypes.data)

    lane.run({"x": slot})

    assert slot.ctypes.data not in device.copied_from
    assert device.staged_bytes == 0


def test_inputs_that_were_gathered_into_staging_memory_stay_there(device: FakeDevice, program: Doubling):
    (lane,) = lanes(device, program, 1)

    staged = lane.stage("x", (3, 4), np.dtype(np.float32))
    staged[...] = rows(3)
    answer = lane.run({"x": staged})["y"]

    np.testing.assert_array_equal(answer, 2 * rows(3))
    assert device.copied_from == [staged.ctypes.data]
    assert device.staged_bytes == 0


def test_inputs_may_be_read_only_and_strided(device: FakeDevice, program: Doubling):
    (lane,) = lanes(device, program, 1)
    strided = rows(6)[::2]
    strided.flags.writeable = False

    np.testing.assert_array_equal(lane.run({"x": strided})["y"], 2 * strided)


def test_the_stages_are_timed(device: FakeDevice, program: Doubling):
    (lane,) = lanes(device, program, 1)

    lane.run({"x": rows(1)})
    lane.run({"x": rows(1)})

    assert lane.last_times == (WORK_NS, WORK_NS, WORK_NS)
    assert lane.total_times == (2 * WORK_NS, 2 * WORK_NS, 2 * WORK_NS)


def test_after_a_failure_nothing_uses_the_batch_any_more(device: FakeDevice, program: Doubling):
    failing = DeviceLane(device, DeviceInstance(device, Failing()))
    slot = rows(2)
    failing.pin(slot.ctypes.data, slot.nbytes)

    with pytest.raises(RuntimeError, match="out of memory"):
        failing.run({"x": slot})

    done_ns = device.now_ns
    assert done_ns == WORK_NS  # the copy of the inputs is over
    with pytest.raises(RuntimeError, match="out of memory"):
        failing.run({"x": slot})


class Failing:
    def compute(self, inputs: Buffers, stream: Stream) -> Buffers:
        raise RuntimeError("CUDA out of memory")


def test_a_closed_lane_unlocks_what_it_has_locked(device: FakeDevice, program: Doubling):
    (lane,) = lanes(device, program, 1)
    slot = rows(2)
    lane.pin(slot.ctypes.data, slot.nbytes)

    lane.close()
    lane.close()

    assert not device.is_page_locked(slot)
