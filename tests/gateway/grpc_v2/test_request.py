import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2 as pb

from gateway.errors import UnknownRegionError, UnsupportedRequestError
from gateway.grpc_v2.inputs import read_plain_inputs
from gateway.grpc_v2.request import decode
from gateway.v2.request import Decoded
from gateway.v2.shared_memory import SharedMemory
from models.errors import InvalidRequestError, ModelsError
from models.spec import ModelSpec
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.grpc_v2.serving import output, request, tensor

NOTHING = SharedMemory(is_enabled=False)


def spec_of(model: str) -> ModelSpec:
    return FakeEngine().model(model)


def decoded(message: object, model: str = "ident_fp32") -> Decoded:
    return decode(spec_of(model), None, message, read_plain_inputs(message), NOTHING)


@pytest.mark.parametrize(
    ("datatype", "field", "elements", "expected"),
    [
        ("BOOL", "bool_contents", [True, False], np.array([[True, False]])),
        ("INT8", "int_contents", [300, -1], np.int8([[44, -1]])),
        ("INT16", "int_contents", [70_000, 1], np.int16([[4464, 1]])),
        ("INT32", "int_contents", [-(2**31), 1], np.int32([[-(2**31), 1]])),
        ("INT64", "int64_contents", [2**62, 1], np.int64([[2**62, 1]])),
        ("UINT8", "uint_contents", [300, 1], np.uint8([[44, 1]])),
        ("UINT16", "uint_contents", [70_000, 1], np.uint16([[4464, 1]])),
        ("UINT32", "uint_contents", [2**32 - 1, 1], np.uint32([[2**32 - 1, 1]])),
        ("UINT64", "uint64_contents", [2**64 - 1, 1], np.uint64([[2**64 - 1, 1]])),
        ("FP32", "fp32_contents", [0.5, float("inf")], np.float32([[0.5, np.inf]])),
        ("FP64", "fp64_contents", [0.1, 1], np.float64([[0.1, 1]])),
        ("BYTES", "bytes_contents", [b"a\xff", b""], np.array([[b"a\xff", b""]], np.object_)),
    ],
)  # fmt: skip
def test_a_typed_list_is_read_and_narrow_integers_are_cut(
    datatype: str, field: str, elements: list[object], expected: np.ndarray
) -> None:
    message = request(tensor(datatype=datatype, contents={field: elements}))

    found = decoded(message, f"ident_{datatype.lower()}").request.inputs["IN"]

    assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist())


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint64, np.bool_])
def test_raw_contents_are_views_on_the_message(dtype: type[np.generic]) -> None:
    array = np.array([[1, 0, 1]], dtype)
    word = {"bool": "BOOL", "bfloat16": "BF16", "float32": "FP32", "float16": "FP16"}.get(
        array.dtype.name, array.dtype.name.upper()
    )
    message = request(tensor(datatype=word, shape=(1, 3)), raw=[array.tobytes()])

    found = decoded(message, f"ident_{word.lower()}").request.inputs["IN"]

    assert (found.dtype, found.tolist(), found.flags.owndata) == (array.dtype, array.tolist(), False)


@pytest.mark.parametrize("length", [1, 31, 32, 4095, 4096, 600_000])  # where the bytes before the elements become more
def test_lists_of_any_length_are_read(length: int) -> None:
    elements = np.arange(length, dtype=np.float32)
    message = request(tensor(shape=(1, length), contents={"fp32_contents": elements}))

    np.testing.assert_array_equal(decoded(message).request.inputs["IN"], elements[np.newaxis])


def test_all_that_a_request_says_reaches_the_engine() -> None:
    values: dict[str, object] = {
        "priority": (3,), "timeout": 5, "sequence_id": "s", "sequence_start": True, "sequence_end": False,
        "triton_enable_empty_final_response": True, "a": 1, "b": True, "c": "x", "d": 1.5,
    }  # fmt: skip

    found = decoded(request(values=values, id="r", outputs=[output()])).request

    assert found[3:] == (("OUT",), "r", 3, 5000, {"a": 1, "b": True, "c": "x", "d": 1.5}, "s", True, False)


def test_negative_numbers_are_the_unsigned_ones_with_the_same_bits() -> None:
    found = decoded(request(values={"sequence_id": -1, "timeout": -1})).request

    assert (found.sequence_id, found.timeout_ns) == (2**64 - 1, (2**64 - 1) * 1000)


def test_outputs_are_classes_or_values_all_in_binary_form() -> None:
    found = decoded(request(outputs=[output("A"), output("B", classification=2, binary_data=False)]))

    assert [(form.is_binary, form.classes) for form in found.forms.values()] == [(True, 0), (True, 2)]


def refusal(message: object, model: str = "ident_fp32") -> str:
    with pytest.raises(InvalidRequestError) as caught:
        decoded(message, model)
    return str(caught.value)


RAW = np.float32([1, 2]).tobytes()
MISTAKES = {
    "input byte size mismatch for input 'IN' for model 'ident_fp32'. Expected 8, got 4": request(
        tensor(), raw=[b"1234"]
    ),
    "input byte size mismatch for input 'IN' for model 'ident_fp32'. Expected 8, got 12": request(
        tensor(contents={"fp32_contents": [1, 2, 3]})
    ),
    "input byte size mismatch for input 'IN' for model 'ident_fp32'. Expected -8, got 8": request(
        tensor(shape=(1, -2)), raw=[RAW]
    ),
    "inference input 'IN' data-type is '<invalid>', but model 'ident_fp32' expects 'FP32'": request(
        tensor(datatype="FOO"), raw=[RAW]
    ),
    "input 'IN' already exists in request": request(tensor(), tensor(), raw=[RAW, RAW]),
    "output 'OUT' already exists in request": request(outputs=[output(), output()]),
    "inference request batch-size must be <= 8 for 'ident_fp32'": request(tensor(shape=(9, 1)), raw=[b""]),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_what_the_core_finds_is_said_with_the_requests_id(text: str) -> None:
    message = MISTAKES[text]
    message.id = "r"

    assert refusal(message) == f"[request id: r] {text}"


FRONTEND = {
    "unable to find data for input tensor 'IN' for model 'ident_fp32' in request.": request(tensor()),
    "contents field must not be specified when using raw_input_contents for 'IN' for model 'ident_fp32'": request(
        tensor(contents={"fp32_contents": [1, 2]}), raw=[RAW]
    ),
    "unexpected explicit tensor data for input tensor 'IN' for model 'ident_fp32' of type 'INT32', expected datatype "
    "'FP32'": request(tensor(contents={"fp32_contents": [1, 2], "int_contents": [1, 2]})),
    "unexpected explicit tensor data for input tensor 'IN' for model 'ident_fp32' of type 'FP32', expected datatype "
    "'<invalid>'": request(tensor(datatype="", contents={"fp32_contents": [1, 2]})),
    "unexpected inference input 'X' for model 'ident_fp32'": request(tensor("X"), raw=[b""]),
    "unexpected inference output 'X' for model 'ident_fp32'": request(tensor(), raw=[b""], outputs=[output("X")]),
    "invalid value for 'priority', expected value >= 0.": request(values={"priority": -1}),
    "invalid value type for 'priority' parameter, expected int64_param or uint64_param.": request(
        values={"priority": "1"}
    ),
    "invalid value type for 'timeout' parameter, expected int64_param.": request(values={"timeout": (1,)}),
    "invalid value type for 'sequence_id' parameter, expected int64_param or string_param.": request(
        values={"sequence_id": True}
    ),
    "invalid value type for 'sequence_start' parameter, expected bool_param.": request(values={"sequence_start": 1}),
    "invalid value type for 'x' parameter, expected int64_param, bool_param, or string_param.": request(
        values={"x": (1,)}
    ),
    "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting with "
    "'triton_' are allowed: triton_enable_empty_final_response": request(values={"triton_x": 1}),
    "invalid value for 'classification' parameter, expected >= 0": request(outputs=[output(classification=0)]),
    "invalid value type for 'classification' parameter, expected int64_param": request(
        outputs=[output(classification="1")]
    ),
    "output can't set both 'shared_memory_region' and 'classification'": request(
        outputs=[output(shared_memory_region="r", shared_memory_byte_size=8, classification=1)]
    ),
    "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for tensor 'IN'": request(
        tensor(shared_memory_region="r")
    ),
    "'shared_memory_offset' can not be specified without 'shared_memory_region' parameter for tensor 'OUT'": request(
        outputs=[output(shared_memory_offset=1)]
    ),
    "invalid value type for 'shared_memory_region' parameter for tensor 'IN', expected string_param.": request(
        tensor(shared_memory_region=1, shared_memory_byte_size=8)
    ),
    "unexpected 'content' provided when using shared memory for input tensor 'IN' for model 'ident_fp32'": request(
        tensor(shared_memory_region="r", shared_memory_byte_size=8, contents={"fp32_contents": [1, 2]})
    ),
}


@pytest.mark.parametrize("text", FRONTEND)
def test_what_is_found_before_the_core_is_said_as_triton_does(text: str) -> None:
    assert refusal(FRONTEND[text]) == text


@pytest.mark.parametrize(
    ("contents", "text"),
    [
        ([b"a"], "expected 2 string elements for inference input 'IN' for model 'ident_bytes', got 1"),
        ([b"a"] * 3, "unexpected number of string elements 3 for inference input 'IN' for model 'ident_bytes', "
         "expecting 2"),
    ],
)  # fmt: skip
def test_strings_are_counted(contents: list[bytes], text: str) -> None:
    message = request(tensor(datatype="BYTES", contents={"bytes_contents": contents}))

    assert refusal(message, "ident_bytes") == f"[request id: <id_unknown>] {text}"


def test_a_long_id_of_a_sequence_is_not_supported() -> None:
    with pytest.raises(UnsupportedRequestError, match="cannot be longer than 128 characters"):
        decoded(request(values={"sequence_id": "x" * 129}))


@pytest.mark.parametrize("where", ["inputs", "outputs"])
def test_an_unknown_region_of_shared_memory_is_not_found(where: str) -> None:
    there = {"shared_memory_region": "r", "shared_memory_byte_size": 8}
    message = request(tensor(**there)) if where == "inputs" else request(outputs=[output(**there)])

    with pytest.raises(UnknownRegionError, match="Unable to find shared memory region: 'r'"):
        decoded(message)


def test_surplus_raw_contents_are_ignored() -> None:
    message = request(tensor(), raw=[RAW, RAW])

    assert decoded(message).request.inputs["IN"].tolist() == [[1, 2]]


@pytest.mark.parametrize("shape", [(2**62, 4), (0, 2**62, 4), (2**63 - 1,) * 8, (1,) * 40, (-(2**63), -(2**63))])
def test_no_shape_makes_it_reserve_memory(shape: tuple[int, ...]) -> None:
    message = request(tensor(shape=shape), raw=[b""])

    with pytest.raises(ModelsError):
        decoded(message)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_request_or_a_typed_error(data: bytes) -> None:
    message = pb.ModelInferRequest(
        model_name="ident_bytes",
        inputs=[tensor(datatype="BYTES", shape=(1, 2))],
        raw_input_contents=[data],
    )
    try:
        found = decoded(message, "ident_bytes")
    except InvalidRequestError:
        return

    assert found.request.inputs["IN"].shape == (1, 2)
