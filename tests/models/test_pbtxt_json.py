"""A configuration in JSON, as a load request brings it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import ConfigError, ModelsError, SeveralProblemsError
from models.pbtxt import parse_json, to_json

SOURCE = "echo: the configuration of the load request"
CONFIG = {
    "max_batch_size": 4,
    "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [2]}],
    "parameters": {"threads": {"string_value": "2"}},
    "dynamic_batching": {"preferred_batch_size": [2, 4], "max_queue_delay_microseconds": 100},
}


def test_field_names_are_those_of_config_pbtxt() -> None:
    message = parse_json(json.dumps(CONFIG), SOURCE).message

    assert (message.max_batch_size, message.input[0].dims[0]) == (4, 2)
    assert message.parameters["threads"].string_value == "2"


def test_what_a_server_shows_can_be_given_back() -> None:
    shown = to_json(parse_json(json.dumps(CONFIG), SOURCE).message)

    assert to_json(parse_json(json.dumps(shown), SOURCE).message) == shown


@pytest.mark.parametrize(
    ("config", "field", "expected"),
    [
        ({"max_batch_sice": 4}, "max_batch_sice", 'a field of ModelConfig; did you mean "max_batch_size"?'),
        ({"input": [{}, {"dim": [2]}]}, "input[1].dim", 'a field of ModelInput; did you mean "dims"?'),
        ({"input": [{"datatype": "FP32"}]}, "input[0].datatype", 'did you mean "data_type"?'),
        ({"dynamic_batching": {"delay": 1}}, "dynamic_batching.delay", "a field of ModelDynamicBatching: preferred_"),
        ({"parameters": {"a": {"value": "x"}}}, "parameters[a].value", "a field of ModelParameter: string_value"),
        ({"parameters": {"a": 1}}, "parameters[a]", "found 1, expected an object in braces"),
        ({"dynamic_batching": []}, "dynamic_batching", "found [], expected an object in braces"),
        ({"input": ["x"]}, "input[0]", 'found "x", expected an object in braces'),
        ([], "(top level)", "found [], expected an object in braces"),
    ],
)
def test_an_unknown_field_is_named_with_its_place_and_a_suggestion(config: object, field: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_json(json.dumps(config), SOURCE)

    assert (caught.value.field, caught.value.line, expected in str(caught.value)) == (field, None, True)


def test_all_unknown_fields_are_named() -> None:
    with pytest.raises(SeveralProblemsError) as caught:
        parse_json('{"a": 1, "input": [{"b": 2}]}', SOURCE)

    assert [problem.field for problem in caught.value.problems] == ["a", "input[0].b"]


@pytest.mark.parametrize(
    "text",
    [
        "", "{", '{"max_batch_size": "x"}', '{"input": 5}', '{"max_batch_size": 1e30}', '{"input": "\\ud800"}',
        '{"parameters": [1]}', "[" * 100_000, '{"input":' * 5000, '{"max_batch_size": 1, "max_batch_size": 2}',
    ],
)  # fmt: skip
def test_what_is_no_configuration_is_one_sentence(text: str) -> None:
    with pytest.raises(ConfigError, match="expected JSON with the field names of config"):
        parse_json(text, SOURCE)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list(CONFIG)), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_whatever_comes_is_a_configuration_or_an_error_of_ours(value: object) -> None:
    try:
        name = parse_json(json.dumps(value), SOURCE).message.name
    except ModelsError as error:
        name = str(error).partition(":")[0]

    assert name in {"", "echo"}
