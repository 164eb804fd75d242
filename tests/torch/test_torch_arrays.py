"""numpy arrays and torch tensors on the same memory."""

import numpy as np
import pytest

from models.tensors import DataType

torch = pytest.importorskip("torch", reason="needs PyTorch (make test-torch)")

from backends.torch_engine.arrays import to_array, to_tensor  # noqa: E402 - needs torch
from backends.torch_engine.cuda_device import CudaBuffer  # noqa: E402

pytestmark = pytest.mark.torch

NUMBERS = [kind for kind in DataType if kind is not DataType.BYTES]


@pytest.mark.parametrize("data_type", NUMBERS, ids=lambda kind: kind.value)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)], ids=str)
def test_arrays_survive_the_way_there_and_back(data_type: DataType, shape: tuple[int, ...]):
    array = np.ones(shape).astype(data_type.numpy)
    array.flags.writeable = False

    tensor = to_tensor(array)
    back = to_array(tensor)

    assert back.dtype == data_type.numpy
    assert back.shape == shape
    assert back.flags.owndata or back.base.flags.owndata
    np.testing.assert_array_equal(back.astype(np.float64), np.ones(shape))


def test_a_tensor_is_on_the_arrays_memory_and_keeps_it():
    array = np.arange(1_000.0)
    array.flags.writeable = False
    address = array.ctypes.data

    tensor = to_tensor(array)
    del array

    assert tensor.data_ptr() == address
    np.testing.assert_array_equal(to_array(tensor), np.arange(1_000.0))


def test_arrays_and_tensors_may_have_any_strides():
    array = np.arange(24.0).reshape(2, 3, 4)[:, ::-1, ::2]

    np.testing.assert_array_equal(to_array(to_tensor(array).permute(2, 0, 1)), array.transpose(2, 0, 1))


@pytest.mark.parametrize("data_type", NUMBERS, ids=lambda kind: kind.value)
def test_device_memory_is_seen_as_any_tensor(data_type: DataType):
    memory = CudaBuffer(torch.zeros(256, dtype=torch.uint8))  # a GPU's tensors differ in nothing that matters here

    view = memory.view((2, 3), data_type.numpy)

    assert (view.shape, view.dtype, view.address) == ((2, 3), data_type.numpy, memory.address)
    assert view.nbytes == 6 * data_type.numpy.itemsize
    assert memory.nbytes == 256
