"""config.pbtxt <-> Triton's own message, and the message as the JSON that ``/config`` shows.

The schema is the generated module of the PyPI package ``tritonclient``: no copied protos, and one descriptor pool for
us and for clients in the same process. Protobuf messages stay inside the ``pbtxt*`` and ``config*`` modules.
"""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from google.protobuf import json_format, text_format  # type: ignore[import-untyped]
from tritonclient.grpc import model_config_pb2

from models.config_lines import TOP_LEVEL, ConfigLines
from models.errors import ConfigError
from models.pbtxt_index import Descriptor, Occurrence, PbtxtIndex

ModelConfig: TypeAlias = model_config_pb2.ModelConfig

# The parser's sentences, turned into what it would have liked to see.
_EXPECTATIONS = (
    (re.compile(r"Couldn't parse integer"), "an integer"),
    (re.compile(r"Value out of range"), "an integer in the range of the field's type"),
    (re.compile(r"Couldn't parse float"), "a number"),
    (re.compile(r"Expected string"), "a quoted string"),
    (re.compile(r"String missing ending quote"), "a string that ends on its line, with a closing quote"),
    (re.compile(r"Expected identifier|has no field named"), "a field name"),
    (re.compile(r"should not have multiple"), "this field once"),
    (re.compile(r'specified along with field "(\w+)"'), r'only one of it and "\1"'),
    (re.compile(r"Expected (.*)\."), r"\1"),
)
_UNCLOSED = re.compile(r' : Expected "[}>]"\.$')  # the parser reports it at the last token
_END = "the end of the text"


@dataclass(frozen=True, slots=True)
class ConfigText:
    """A parsed config.pbtxt: the message, which completion may fill in, and where its fields stand."""

    message: ModelConfig
    lines: ConfigLines

    def copy(self) -> "ConfigText":
        """The same text with its own message."""
        message = ModelConfig()
        message.CopyFrom(self.message)
        return ConfigText(message, self.lines)


def parse(text: str, source: str) -> ConfigText:
    """Read the text of a config.pbtxt; an empty text is a valid, empty configuration.

    Args:
        text: Protobuf text format.
        source: File name for messages, e.g. ``resnet/config.pbtxt``.

    Raises:
        ConfigError: Syntax error, unknown field, or a value that its field cannot hold.
    """
    index = PbtxtIndex(text, ModelConfig.DESCRIPTOR)
    message = ModelConfig()
    try:
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        raise _syntax_error(error, text, source, index) from error
    return ConfigText(message, ConfigLines(source=source, line_by_field=index.line_by_field))


def enum_word(message: Any, field: str) -> str:
    """The word of an enum field's value; for a number without a word, its digits."""
    number = getattr(message, field)
    value = message.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number.get(number)
    return str(number) if value is None else str(value.name)


def to_json(message: ModelConfig) -> dict[str, object]:
    """The message as Triton shows it: snake_case, defaults printed, unset messages absent, every integer a number."""
    values = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return _with_numbers(values, message.DESCRIPTOR)


def _with_numbers(values: dict[str, Any], schema: Descriptor) -> dict[str, object]:
    # protobuf's JSON mapping turns 64-bit integers into strings; Triton turns them back, except for keys of maps.
    return {name: _with_number(value, schema.fields_by_name[name]) for name, value in values.items()}


def _with_number(value: Any, field: Descriptor) -> object:
    if isinstance(value, list):
        return [_with_number(element, field) for element in value]
    if field.message_type is not None:
        if field.message_type.GetOptions().map_entry:
            of_value = field.message_type.fields_by_name["value"]
            return {key: _with_number(entry, of_value) for key, entry in value.items()}
        return _with_numbers(value, field.message_type)
    is_wide = field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64)
    return int(value) if is_wide else value


def _syntax_error(error: Any, text: str, source: str, index: PbtxtIndex) -> ConfigError:
    line, column = error.GetLine() or 1, error.GetColumn() or 1
    is_unclosed = _UNCLOSED.search(str(error)) is not None
    occurrence = index.occurrences[-1] if is_unclosed else index.at(line, column)
    found = _END if is_unclosed else _word_at(text, line, column)
    if occurrence is not None and occurrence.message is not None and occurrence.field is None:
        found = f'unknown field "{found}"'
    expected = _expectation(str(error), occurrence)
    return ConfigError(
        source=source,
        line=line,
        field=TOP_LEVEL if occurrence is None else occurrence.path,
        found=found,
        expected=f"{expected}, or no comma before ]" if found == "]" else expected,
    )


def _word_at(text: str, line: int, column: int) -> str:
    rest = text.split("\n")[line - 1][column - 1 :].strip()
    match = re.match(r"[\w.+-]+|\"[^\"]*\"?|'[^']*'?|.", rest)
    return match.group() if match else _END


def _expectation(sentence: str, occurrence: Occurrence | None) -> str:
    if occurrence is not None and occurrence.message is not None:
        if occurrence.field is None:
            return _known_fields(occurrence.path.rpartition(".")[2], occurrence.message)
        if "no value named" in sentence:
            return f"one of {_listed(occurrence.field.enum_type.values_by_name)}"
    for pattern, expectation in _EXPECTATIONS:
        match = pattern.search(sentence)
        if match:
            return match.expand(expectation)
    return f"valid protobuf text format; the parser says: {sentence.partition(' : ')[2]}"


def _known_fields(name: str, message: Descriptor) -> str:
    names = list(message.fields_by_name)
    similar = difflib.get_close_matches(name, names, n=1)
    hint = f'; did you mean "{similar[0]}"?' if similar else f": {_listed(names)}"
    return f"a field of {message.name}{hint}"


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)
