"""config.pbtxt as text: syntax errors with places, lines of fields, the JSON form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import ConfigError
from models.pbtxt import parse, to_json

EVERY_STYLE = """\
# a comment: with { braces }
name: "a" 'b'   # adjacent strings
input [
  { name: "x" data_type: TYPE_FP32 dims: [ 3,
      224 ] },
  { name: "y # no comment" dims: 1 dims: 2 }
]
output {
  name: "z"; dims: [ ],
}
output < name: "w" >
dynamic_batching {
  preferred_batch_size: [ 4, 8 ]
  preferred_batch_size: 16
  priority_queue_policy { key: 1 value { max_queue_size: 2 } }
}
parameters { key: "a" value: { string_value: "1" } }
parameters [ { key: "b", value { string_value: "2" } } ]
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("name", 2),
        ("input", 3),
        ("input[0]", 4),
        ("input[0].dims[0]", 4),
        ("input[0].dims[1]", 5),
        ("input[1].dims[1]", 6),
        ("output[0]", 8),
        ("output[0].dims", 9),
        ("output[1].name", 11),
        ("dynamic_batching", 12),
        ("dynamic_batching.preferred_batch_size[1]", 13),
        ("dynamic_batching.preferred_batch_size[2]", 14),
        ("dynamic_batching.priority_queue_policy[0].value.max_queue_size", 15),
        ("parameters[0].value.string_value", 17),
        ("parameters[1].key", 18),
    ],
)
def test_every_way_of_writing_a_field_has_its_line(path: str, line: int) -> None:
    lines = parse(EVERY_STYLE, "m/config.pbtxt").lines
    assert lines.mentions(path)
    assert lines.line_of(path) == line


@pytest.mark.parametrize(
    ("missing", "line"),
    [("input[1].data_type", 6), ("output[0].dims[0]", 9), ("output[7].name", None), ("max_batch_size", None)],
)
def test_a_missing_field_has_the_line_of_the_block_around_it(missing: str, line: int | None) -> None:
    lines = parse(EVERY_STYLE, "m/config.pbtxt").lines
    assert not lines.mentions(missing)
    assert lines.line_of(missing) == line


@pytest.mark.parametrize(
    ("text", "line", "field", "found", "expected"),
    [
        ("\nmax_batch_sise: 8", 2, "max_batch_sise", 'unknown field "max_batch_sise"', 'you mean "max_batch_size"?'),
        ("input {\n  dimz: 8 }", 2, "input[0].dimz", 'unknown field "dimz"', 'ModelInput; did you mean "dims"?'),
        ("17: 3", 1, "(top level)", "17", "a field name"),
        ("qqq { a { b {", 1, "qqq", 'unknown field "qqq"', "a field of ModelConfig: name, platform"),
        ("input {\n\n data_type: FP32 }", 3, "input[0].data_type", "FP32", "TYPE_FP32"),
        ("max_batch_size: many", 1, "max_batch_size", "many", "an integer"),
        ("max_batch_size: 1.5", 1, "max_batch_size", "1.5", "an integer"),
        ("max_batch_size: 99999999999", 1, "max_batch_size", "99999999999", "in the range of"),
        ("max_batch_size:", 1, "max_batch_size", "the end of the text", "an integer"),
        ("name: 3", 1, "name", "3", "a quoted string"),
        ('name: "m\n', 1, "name", '"m', "a closing quote"),
        ('name "m"', 1, "name", '"m"', '":"'),
        ('name: "m"\nname: "m"', 2, "name", '"m"', "this field once"),
        ("input [\n {dims: [1\n 2]} ]", 3, "input[0].dims[1]", "2", '","'),
        ("input [ { },\n ]", 2, "input[0]", "]", '"{", or no comma before ]'),
        ('input {\n name: "x"\n', 2, "input[0]", "the end of the text", '"}"'),
        ('input { name: "x"\n}\n}', 3, "(top level)", "}", "a field name"),
        ("optimization { eager_batching: maybe }", 1, "optimization.eager_batching", "maybe", '"true" or "false"'),
        ("dynamic_batching {}\nsequence_batching {}", 2, "sequence_batching", "seq", 'only one of it and "dynamic'),
        ('name: "\\377"', 1, "name", "", "utf-8"),
    ],
)
def test_a_syntax_error_names_place_found_and_expected(
    text: str, line: int, field: str, found: str, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, "m/config.pbtxt")
    assert (caught.value.source, caught.value.line, caught.value.field) == ("m/config.pbtxt", line, field)
    assert found in caught.value.found
    assert expected in caught.value.expected


@given(
    st.lists(st.sampled_from([*'{}[]<>:,;"\n# \\', "name", "input", "dims", "key", "parameters", '"x"', "-1", "[a.b]"]))
)
def test_any_text_is_read_or_refused_with_a_line(words: list[str]) -> None:
    text = " ".join(words)
    try:
        parsed = parse(text, "m/config.pbtxt")
    except ConfigError as error:
        where = error.line or 0
    else:
        where = max(parsed.lines.line_by_field.values(), default=1)
        mentioned = {path.partition(".")[0].partition("[")[0] for path in parsed.lines.line_by_field}
        assert mentioned == {field.name for field, _ in parsed.message.ListFields()}
    assert 1 <= where <= text.count("\n") + 1


dims = st.lists(st.integers(1, 99), min_size=1, max_size=3)


@given(st.lists(st.tuples(dims, st.booleans()), min_size=1, max_size=4))
def test_lists_and_repeated_blocks_share_their_numbering(tensors: list[tuple[list[int], bool]]) -> None:
    blocks = ["{\n" + (f"dims: {sizes}\n" if packed else "dims: " + "\ndims: ".join(map(str, sizes)) + "\n") + "}"
              for sizes, packed in tensors]  # fmt: skip
    text = "input " + "\ninput ".join(blocks)
    lines = parse(text, "m/config.pbtxt").lines
    for index, (sizes, _) in enumerate(tensors):
        for position, size in enumerate(sizes):
            line = lines.line_of(f"input[{index}].dims[{position}]")
            assert line is not None
            assert str(size) in text.split("\n")[line - 1]


def test_the_json_form_has_words_defaults_and_plain_numbers() -> None:
    config = to_json(parse(EVERY_STYLE, "m/config.pbtxt").message)
    assert config["name"] == "ab"
    assert config["max_batch_size"] == 0
    assert config["batch_input"] == []
    assert "sequence_batching" not in config
    assert config["input"][0] == {  # type: ignore[index]
        "name": "x",
        "data_type": "TYPE_FP32",
        "format": "FORMAT_NONE",
        "dims": [3, 224],
        "is_shape_tensor": False,
        "allow_ragged_batch": False,
        "optional": False,
        "is_non_linear_format_io": False,
    }
    assert config["dynamic_batching"] == {
        "preferred_batch_size": [4, 8, 16],
        "max_queue_delay_microseconds": 0,
        "preserve_ordering": False,
        "priority_levels": 0,
        "default_priority_level": 0,
        "priority_queue_policy": {
            "1": {
                "timeout_action": "REJECT",
                "default_timeout_microseconds": 0,
                "allow_timeout_override": False,
                "max_queue_size": 2,
            }
        },
    }
    assert config["parameters"] == {"a": {"string_value": "1"}, "b": {"string_value": "2"}}
