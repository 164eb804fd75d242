"""Infer requests in JSON, right and wrong."""

from tests.peers.http_cases import ONE, Cases, Request, body, in_bytes, infer, tensor

F = "echo_fp32"


def bad(**members: object) -> Request:
    """A tensor with these members instead of the right ones."""
    return infer(F, body({**tensor(data=[1, 2]), **members}))


def without(member: str) -> Request:
    """A tensor that lacks a member."""
    return infer(F, body({key: value for key, value in ONE.items() if key != member}))


def of(data: str, datatype: str = "FP32", shape: str = "[1,2]", model: str = "") -> Request:
    """A tensor whose data is written so."""
    text = f'{{"inputs":[{{"name":"x","datatype":"{datatype}","shape":{shape},"data":{data}}}]}}'
    return infer(model or f"echo_{datatype.lower().replace('bytes', 'string')}", text)


VALUES = {
    "BOOL": "[true,false]", "UINT8": "[0,255]", "UINT16": "[1,65535]", "UINT32": "[2,4294967295]",
    "UINT64": "[3,18446744073709551615]", "INT8": "[-128,127]", "INT16": "[-32768,5]", "INT32": "[-2147483648,6]",
    "INT64": "[-9223372036854775808,9223372036854775807]", "FP32": "[0.1,-1e-38]", "FP64": "[0.1,1e300]",
    "BYTES": '["","é\\n\\"\\u0000"]', "FP16": "[1,2]", "BF16": "[1,2]",
}  # fmt: skip
TEXTS = (
    "{bad", "", "   ", '{"inputs":', '{"inputs":[]}x', "[1]", "null", "3", '"x"', "{}", '{"inputs":{}}',
    '{"inputs":1}', '{"inputs":[]}', '{"inputs":null}', '{"inputs":[],"outputs":1}', '{"inputs":[7]}',
    '{"id":1,"inputs":[]}', '{"a":nan}', '{"a":1e400}', '{"a":"\\ud800"}', '{"a":"\x01"}', "{'a':1}", '{"a":1,}',
    '{"a":01}', '{"a":.5}', '{"a":1.}', '{"a":+1}', '{"inputs":[,]}', '{"inputs":[1 2]}', '{"a":tru}', '{"a":"\\x"}',
    '{"a" 1}', '{"a":1 "b":2}', '["', "// x\n{}", '{"parameters":[],"inputs":[]}', '{"parameters":1,"inputs":[]}',
    '\ufeff{"inputs":[]}',
)  # fmt: skip
DIMS = {
    "a string": "2", "negative": [1, -1], "fractional": [1.0, 2], "a boolean": [True, 2], "of 65 bits": [2**64, 2],
    "as a string": [1, "2"], "null": None, "nested": [[1, 2]], "too large": [1, 3], "too small": [1, 1],
    "of one rank too many": [1, 2, 1], "of one rank too few": [2], "none": [], "zero rows": [0, 2], "zero": [1, 0],
    "too many rows": [9, 2], "whose product overflows": [2**40, 2**40],
}  # fmt: skip
DATA = {
    "one value too few": "[1]", "one value too many": "[1,2,3]", "no value": "[]", "a number": "1", "null": "null",
    "a string": '"ab"', "an object": '{"a":1}', "a string among": '[1,"a"]', "a null among": "[1,null]",
    "a boolean among": "[1,true]", "rows": "[[1,2]]", "columns": "[[1],[2]]", "uneven rows": "[[1],[[2]]]",
    "empty rows": "[[],[1,2]]", "an object among": "[1,{}]", "NaN": "[NaN,1]", "infinities": "[Infinity,-Infinity]",
    "Inf": "[Inf,1]", "too large a number": "[1e39,-1e39]", "tiny numbers": "[1e-46,5e-324]", "-0": "[-0.0,-0]",
    "integers": "[1,18446744073709551615]", "an integer of 30 digits": "[100000000000000000000000000000,1]",
    "exponents": "[1E2,1e+2]", "spaces": "[ 1 ,\n2 ]",
}  # fmt: skip

CASES: Cases = {
    **{f"the text {text[:30]!r}": infer(F, text) for text in TEXTS},
    **{f"a dimension {what}": bad(shape=dims) for what, dims in DIMS.items()},
    **{f"data that is {what}": of(data) for what, data in DATA.items()},
    **{f"values of {datatype}": of(data, datatype) for datatype, data in VALUES.items()},
    **{f"{datatype} out of range": of("[300,-300]", datatype) for datatype in ("UINT8", "INT8")},
    "UINT16 beyond": of("[70000,1]", "UINT16"),
    "INT16 beyond": of("[70000,-70000]", "INT16"),
    "UINT32 beyond": of("[4294967296,1]", "UINT32"),
    "INT32 beyond": of("[4294967296,-4294967297]", "INT32"),
    "INT64 beyond": of("[9223372036854775808,1]", "INT64"),
    "INT64 beyond below": of("[-9223372036854775809,1]", "INT64"),
    "UINT64 beyond": of("[18446744073709551616,1]", "UINT64"),
    "UINT64 negative": of("[-1,1]", "UINT64"),
    "INT32 fraction": of("[1.5,1]", "INT32"),
    "INT32 whole double": of("[1.0,1]", "INT32"),
    "INT32 exponent": of("[1e2,1]", "INT32"),
    "BOOL of numbers": of("[0,1]", "BOOL"),
    "BOOL of strings": of('["true","false"]', "BOOL"),
    "BYTES of numbers": of("[1,2]", "BYTES"),
    "BYTES too few": of('["a"]', "BYTES"),
    "BYTES too many": of('["a","b","c"]', "BYTES"),
    "BYTES nested": of('[["a","b"]]', "BYTES"),
    "BYTES of objects": of('[{"b64":"YQ=="},"b"]', "BYTES"),
    "BYTES with escapes": of('["\\u00e9\\ud83d\\ude00","\\/\\b\\f\\r\\t"]', "BYTES"),
    "FP64 exact": of("[0.30000000000000004,1.7976931348623157e308]", "FP64"),
    "FP64 too large": of("[1e309,1]", "FP64"),
    "FP64 NaN": of("[NaN,Infinity]", "FP64"),
    "FP32 of thirds": of("[0.333333333,16777217]"),
    "FP16 number": of("1", "FP16"),
    "no name": without("name"),
    "no datatype": without("datatype"),
    "no shape": without("shape"),
    "no data": without("data"),
    "a name that is a number": bad(name=1),
    "a datatype that is a number": bad(datatype=1),
    "an unknown datatype": bad(datatype="FLOAT"),
    "a datatype in small letters": bad(datatype="fp32"),
    "a configuration's datatype": bad(datatype="TYPE_FP32"),
    "an empty datatype": bad(datatype=""),
    "another datatype than the model's": infer(F, body(tensor("INT32", data=[1, 2]))),
    "another datatype of other size": infer(F, body(tensor("FP64", data=[1, 2]))),
    "an unknown input": infer(F, body(tensor(name="z", data=[1, 2]))),
    "an empty input name": infer(F, body(tensor(name="", data=[1, 2]))),
    "an input twice": infer(F, body(ONE, ONE)),
    "an input too many": infer(F, body(ONE, tensor(name="z", data=[1, 2]))),
    "no input": infer("pair", body()),
    "one of two inputs": infer("pair", body(tensor(name="x0", data=[1, 2]))),
    "two inputs": infer("pair", pair := body(tensor(name="x0", data=[1, 2]), tensor("INT32", name="x1", data=[3, 4]))),
    "two inputs the other way": infer("pair", body(*pair["inputs"][::-1])),  # type: ignore[index]
    "two inputs of unequal rows": infer(
        "pair", body(tensor(name="x0", data=[1, 2]), tensor("INT32", [2, 1], "x1", data=[3, 4]))
    ),
    "two inputs, one unknown": infer(
        "pair", body(tensor(name="x0", data=[1, 2]), tensor("INT32", name="z", data=[3, 4]))
    ),
    "both optional inputs": infer(
        "optional", body(tensor(name="x0", data=[[1, 2]]), tensor("INT32", [2], "x1", data=[3, 4]))
    ),
    "optional inputs": infer(
        "optional", body(tensor(shape=[2], name="x0", data=[1, 2]), tensor("INT32", [2], "x1", data=[3, 4]))
    ),
    "one optional input": infer("optional", body(tensor("INT32", [2], "x1", data=[3, 4]))),
    "no optional input": infer("optional", body()),
    "no optional input to count rows by": infer("optional_rows", body()),
    "two unknown outputs": infer("pair", {**pair, "outputs": [{"name": "z"}, {"name": "a"}]}),
    "an unknown optional input": infer("optional", body(tensor(name="z", data=[1, 2]))),
    "three of two optional inputs": infer("optional", body(*(tensor(name=n, data=[1, 2]) for n in ("x0", "x1", "x2")))),
    "an output that the model leaves out": infer("half", pair),
    "an output asked for that the model leaves out": infer("half", {**pair, "outputs": [{"name": "y1"}]}),
    "a fixed shape": infer("fixed", body(tensor(shape=[1, 4], data=[1, 2, 3, 4]))),
    "a wrong fixed shape": infer("fixed", body(ONE)),
    "the wrong fixed shape of eight rows": infer("fixed", body(tensor(shape=[8, 1], data=[1] * 8))),
    "eight rows": infer("fixed", body(tensor(shape=[8, 4], data=[1] * 32))),
    "nine rows": infer("fixed", body(tensor(shape=[9, 4], data=[1] * 36))),
    "a model without batches": infer("single", body(tensor(shape=[3], data=[1, 2, 3]))),
    "a model without batches, one rank too many": infer("single", body(ONE)),
    "a model without batches, no shape": infer("single", body(tensor(shape=[], data=[1]))),
    "a model without batches, nothing": infer("single", body(tensor(shape=[0], data=[]))),
    "two dimensions": infer("grid", body(tensor(shape=[2, 2], data=[[1, 2], [3, 4]]))),
    "two wrong dimensions": infer("grid", body(tensor(shape=[2, 3], data=[1] * 6))),
    "unknown members": infer(F, body({**ONE, "what": {"a": [1]}}, what=None, model_name="x")),
    "null as parameters of a tensor": bad(parameters=None),
    "a list as parameters of a tensor": bad(parameters=[]),
    "an unknown parameter of a tensor": bad(parameters={"what": 1}),
    "an id": infer(F, body(ONE, id="a\"é\n")),
    "an empty id": infer(F, body(ONE, id="")),
    "an id that is null": infer(F, body(ONE, id=None)),
    "an id with an error": infer(F, body(tensor("INT32", data=[1, 2]), id="17")),
    "an id with an unknown input": infer(F, body(tensor(name="z", data=[1, 2]), id="17")),
    "values after the tensors": infer(
        F, '{"inputs":[' + str(ONE).replace("'", '"').replace("(1, 2)", "[1,2]") + '],"z":[1]}'
    ),
    "data and a region": bad(parameters={"shared_memory_region": "r", "shared_memory_byte_size": 8}),
    "data and a binary size": bad(parameters={"binary_data_size": 8}),
    "all three sources": bad(parameters={"binary_data_size": 8, "shared_memory_region": "r"}),
    "an unknown region": infer(F, body(tensor(parameters={"shared_memory_region": "r", "shared_memory_byte_size": 8}))),
    "a region without a size": infer(F, body(tensor(parameters={"shared_memory_region": "r"}))),
    "a region that is a number": infer(F, body(tensor(parameters={"shared_memory_region": 1}))),
    "the model raises": infer("fails", body(ONE)),
    "the model raises, with an id": infer("fails", body(ONE, id="17")),
    **{f"the model refuses with code {n}": infer("refuses", body(tensor("INT32", [1, 1], data=[n]))) for n in range(8)},
    "a member twice": infer(F, '{"inputs":[],' + in_bytes(body(ONE)).decode()[1:]),
    "an id that is not UTF-8": infer(F, b'{"id":"\xff",' + in_bytes(body(ONE))[1:]),
    "JSON of 2000 levels": infer(F, '{"a":' + "[" * 1999 + "]" * 1999 + "," + in_bytes(body(ONE)).decode()[1:]),
    "JSON of 99 levels": infer(F, '{"a":' + "[" * 98 + "]" * 98 + "," + in_bytes(body(ONE)).decode()[1:]),
    "a required input missing, where another is optional": infer("partly", body(tensor(name="x0", data=[1, 2]))),
    "an optional input missing, where another is required": infer(
        "partly", body(tensor("INT32", name="x1", data=[3, 4]))
    ),
    "the model answers other rows": infer("odd", body(tensor(shape=[2, 1], data=[1, 2]))),
    "a timeout of a microsecond without a queue policy": infer("echo_fp32", body(ONE, parameters={"timeout": 1})),
    "a slow model": infer("slow", body(ONE)),
}  # fmt: skip
