"""From named tensors to a call, and back; strings play the tensors."""

import collections

import pytest

from backends.errors import ExecutionError, LoadError
from backends.torch_engine.signature import Results, bind_inputs
from models.tensors import DataType
from tests.backends.builders import model, tensor


def call(names: str, arguments: str, given: str, keyword_only: str = ""):
    spec = model(inputs=[tensor(name) for name in names.split()])
    bound = bind_inputs(spec, arguments.split(), keyword_only.split())
    return bound.arguments({name: name.upper() for name in given.split()})


@pytest.mark.parametrize(
    ("names", "arguments", "given", "expected"),
    [
        ("IN__1 IN__0", "a b", "IN__0 IN__1", (["IN__0", "IN__1"], {})),
        ("b a", "a b c", "a b", (["A", "B"], {})),
        ("a c", "a b c", "a c", (["A"], {"c": "C"})),
        ("x y", "a b", "y x", (["X", "Y"], {})),
        ("x y z", "a b c", "x z", (["X", None, "Z"], {})),
        ("x y z", "a b c", "x", (["X"], {})),
        ("a b", "a b", "a", (["A"], {})),
        ("a", "", "a", (["A"], {})),
    ],
    ids=["positions", "names", "gap", "declared", "missing-inside", "missing-at-end", "optional", "no-names"],
)
def test_inputs_become_arguments(names: str, arguments: str, given: str, expected):
    assert call(names, arguments, given) == expected


def test_arguments_that_have_to_be_named_are():
    assert call("a b", "a b", "a b", keyword_only="b") == (["A"], {"b": "B"})


def test_positions_with_a_gap_are_refused():
    with pytest.raises(LoadError, match=r"inputs x__0, x__2 end in positions \[0, 2\], expected 0 to 1"):
        call("x__0 x__2", "", "x__0")


def test_string_tensors_are_refused():
    with pytest.raises(LoadError, match="'y' is TYPE_STRING"):
        bind_inputs(model(outputs=[tensor("y", DataType.BYTES)]), ["x"])


def results(names: str) -> Results:
    return Results(model(outputs=[tensor(name) for name in names.split()]), str)


Pair = collections.namedtuple("Pair", "first second")


@pytest.mark.parametrize(
    ("names", "returned", "expected"),
    [
        ("y", "A", {"y": "A"}),
        ("y z", ("A", "B"), {"y": "A", "z": "B"}),
        ("y z", ["A", "B"], {"y": "A", "z": "B"}),
        ("y z", Pair("A", "B"), {"y": "A", "z": "B"}),
        ("z y", {"y": "A", "z": "B", "aux": None}, {"z": "B", "y": "A"}),
        ("y z", {"out": "A", "aux": "B"}, {"y": "A", "z": "B"}),
        ("OUT__2 OUT__0", ("A", "B", "C"), {"OUT__2": "C", "OUT__0": "A"}),
    ],
    ids=["tensor", "tuple", "list", "namedtuple", "dict", "dict-in-order", "positions"],
)
def test_what_a_model_returns_gets_names(names: str, returned, expected):
    assert results(names).name(returned) == expected


@pytest.mark.parametrize(
    ("names", "returned", "message"),
    [
        ("y", ("A", "B"), "the model returns 2 outputs, declared are y"),
        ("y z", "A", "the model returns 1 outputs, declared are y, z"),
        ("OUT__3", ("A", "B"), "the model returns 2 outputs, declared are OUT__3"),
        ("y z", ("A", None), "output 'z' is of type NoneType, expected a tensor"),
        ("y", [("A",)], "output 'y' is of type tuple, expected a tensor"),
    ],
)
def test_outputs_that_are_not_there_are_named(names: str, returned, message: str):
    with pytest.raises(ExecutionError, match=message):
        results(names).name(returned)
