"""Only the published weights are accepted, and a weights file can do nothing but hold tensors."""

import struct
from dataclasses import dataclass

import numpy as np
import pytest

from models.errors import RepositoryError
from models.zoo.weights import locate, read_state_dict, read_verified

MAGIC = 0x1950A86A20F9469CFC6C
ELEMENTS = np.arange(12, dtype=np.float32)
COUNT = len(ELEMENTS)


@dataclass(frozen=True)
class Global:
    """A name in a module, e.g. ``torch.FloatStorage``."""

    name: str


@dataclass(frozen=True)
class Call:
    """A name that the stream asks to call."""

    function: Global
    arguments: tuple


@dataclass(frozen=True)
class Persistent:
    """A reference that the reader resolves."""

    identity: tuple


def opcodes(value):
    """What torch's pickler writes for `value`; torch itself is not needed, and names need not exist."""
    return OPCODES[type(value)](value)


def marked(values, end):
    return b"(" + b"".join(map(opcodes, values)) + end


OPCODES = {
    Global: lambda value: "c{0}\n{2}\n".format(*value.name.rpartition(".")).encode(),
    Call: lambda value: opcodes(value.function) + opcodes(value.arguments) + b"R",
    Persistent: lambda value: opcodes(value.identity) + b"Q",
    type(None): lambda _: b"N",
    bool: lambda value: b"\x88" if value else b"\x89",
    int: lambda value: f"L{value}L\n".encode(),
    str: lambda value: b"X" + struct.pack("<I", len(value)) + value.encode(),
    tuple: lambda value: marked(value, b"t"),
    list: lambda value: marked(value, b"l"),
    dict: lambda value: marked([item for pair in value.items() for item in pair], b"d"),
}


def tensor(*, offset=0, shape=(3, 4), strides=(4, 1), key="0", kind="torch.FloatStorage"):
    storage = Persistent(("storage", Global(kind), key, "cpu", COUNT, None))
    hooks = Call(Global("collections.OrderedDict"), ())
    return Call(Global("torch._utils._rebuild_tensor_v2"), (storage, offset, shape, strides, False, hooks))


def legacy_file(tensors, *, magic=MAGIC, count=COUNT):
    values = (magic, 1001, {"little_endian": True}, tensors, ["0"])
    pickles = b"".join(b"\x80\x02" + opcodes(value) + b"." for value in values)
    return pickles + struct.pack("<q", count) + ELEMENTS.tobytes()


def test_the_installed_file_has_the_published_tensors():
    weights = read_verified(locate())

    assert len(weights) == 296
    assert weights["_conv_stem.weight"].shape == (32, 3, 3, 3)
    assert weights["_fc.weight"].dtype == np.float32


def test_one_changed_bit_is_refused_by_digest(tmp_path):
    damaged = bytearray(locate().read_bytes())
    damaged[-1000] ^= 1
    (tmp_path / "weights.pth").write_bytes(damaged)

    with pytest.raises(RepositoryError, match=r"weights\.pth \(18826032 bytes\) is damaged .* expected 57934424"):
        read_verified(tmp_path / "weights.pth")


def test_a_missing_file_is_a_sentence(tmp_path):
    with pytest.raises(RepositoryError, match=r"weights\.pth cannot be read: No such file"):
        read_verified(tmp_path / "weights.pth")


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        ({}, ELEMENTS.reshape(3, 4)),
        ({"shape": (4, 3), "strides": (1, 4)}, ELEMENTS.reshape(3, 4).T),
        ({"offset": 5, "shape": (2,), "strides": (6,)}, ELEMENTS[5::6]),
        ({"offset": 7, "shape": (), "strides": ()}, ELEMENTS[7]),
        ({"shape": (3, 2), "strides": (0, 1)}, np.tile(ELEMENTS[:2], (3, 1))),
    ],
    ids=["contiguous", "transposed", "strided", "scalar", "broadcast"],
)
def test_views_show_their_elements(view, expected):
    found = read_state_dict(legacy_file({"w": tensor(**view)}))["w"]

    np.testing.assert_array_equal(found, expected)
    assert not found.flags.writeable


@pytest.mark.parametrize(
    "view",
    [
        {"offset": 1},
        {"strides": (5, 1)},
        {"shape": (1 << 40, 1), "strides": (1, 1)},
        {"offset": -1},
        {"strides": (-4, 1)},
        {"strides": (4,)},
        {"shape": (0, 4)},
    ],
    ids=["offset", "stride", "size", "negative offset", "negative stride", "ranks differ", "empty"],
)
def test_views_outside_their_storage_are_refused(view):
    with pytest.raises(RepositoryError, match="not a legacy torch file of tensors"):
        read_state_dict(legacy_file({"w": tensor(**view)}))


@pytest.mark.parametrize("name", ["posix.system", "builtins.eval", "torch.load", "collections.Counter"])
def test_names_that_are_not_allowed_never_run(name):
    call = Call(Global(name), ("raise SystemExit",))

    with pytest.raises(RepositoryError, match=rf"{name} is not allowed"):
        read_state_dict(legacy_file({"w": call}))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK\x03\x04",
        legacy_file({"w": tensor()})[:-1],
        legacy_file({"w": tensor()}, magic=1),
        legacy_file({"w": tensor()}, count=13),
        legacy_file({"w": tensor(key="1")}),
        legacy_file({"w": tensor(kind="collections.OrderedDict")}),
        legacy_file({"w": 1}),
        legacy_file([tensor()]),
    ],
    ids=["empty", "zip", "cut", "magic", "count", "unknown storage", "storage type", "number", "list"],
)
def test_other_files_are_refused_with_a_sentence(data):
    with pytest.raises(RepositoryError, match="weights: not a legacy torch file of tensors"):
        read_state_dict(data)
