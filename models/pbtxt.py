"""config.pbtxt <-> Triton's own message, and the message as the JSON that ``/config`` shows.

The schema is the generated module of the PyPI package ``tritonclient``: no copied protos, and one descriptor pool for
us and for clients in the same process. Protobuf messages stay inside the ``pbtxt*`` and ``config*`` modules.
"""

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from google.protobuf import json_format, text_format  # type: ignore[import-untyped]
from tritonclient.grpc import model_config_pb2

from models.config_lines import TOP_LEVEL, ConfigLines
from models.errors import ConfigError, ConfigSyntaxError
from models.pbtxt_index import Descriptor, Occurrence, PbtxtIndex
from models.pbtxt_json import strangers
from models.problems import as_one

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
_MAX_SENTENCE = 400


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
        ConfigSyntaxError: Syntax error, unknown field, or a value that its field cannot hold.
        SeveralProblemsError: Several unknown fields. Of other mistakes of syntax the first hides the others.
    """
    index = PbtxtIndex(text, ModelConfig.DESCRIPTOR)
    unknown = [_unknown_field(found, text, source) for found in index.unknown()]
    message = ModelConfig()
    try:
        text_format.Parse(text, message, allow_unknown_field=bool(unknown))
    except RecursionError as error:
        found, expected = "blocks within blocks within blocks", "the few levels that a configuration has"
        raise ConfigSyntaxError(source=source, field=TOP_LEVEL, found=found, expected=expected) from error
    except text_format.ParseError as error:
        occurrence = _occurrence(error, index)
        is_told = occurrence is not None and occurrence.is_unknown
        raise as_one([*unknown, *([] if is_told else [_syntax_error(error, text, source, occurrence)])]) from error
    if unknown:
        raise as_one(unknown)
    return ConfigText(message, ConfigLines(source=source, line_by_field=index.line_by_field))


def parse_json(text: str, source: str) -> ConfigText:
    """Read a configuration in JSON with the field names of config.pbtxt, e.g. what `to_json` made.

    Args:
        text: JSON.
        source: What it is, for messages.

    Raises:
        ConfigError: Not JSON, an unknown field, or a value that its field cannot hold.
        SeveralProblemsError: Several of the first two.
    """
    unknown = strangers(text, source, ModelConfig.DESCRIPTOR)
    if unknown:
        raise as_one(unknown)
    message = ModelConfig()
    try:
        json_format.Parse(text, message, max_recursion_depth=32)
    except (json_format.ParseError, UnicodeError, RecursionError) as error:
        found = f"a mistake: {' '.join(str(error).split())[:_MAX_SENTENCE]}"
        expected = "JSON with the field names of config.pbtxt"
        raise ConfigError(source=source, field=TOP_LEVEL, found=found, expected=expected) from error
    given = {name for name, value in json.loads(text).items() if value is not None}  # zeros, which messages forget, too
    mentioned = {field.name: 0 for field in ModelConfig.DESCRIPTOR.fields if given & {field.name, field.json_name}}
    return ConfigText(message, ConfigLines(source=source, line_by_field=mentioned))


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


def _unknown_field(occurrence: Occurrence, text: str, source: str) -> ConfigSyntaxError:
    schema: Descriptor = occurrence.message
    name, known = occurrence.path.rpartition(".")[2], list(schema.fields_by_name)
    near = _nearest(name, known)
    hint = f'; did you mean "{near}"?' if near else f": {_listed(known)}"
    return ConfigSyntaxError(
        source=source,
        line=occurrence.line,
        field=occurrence.path,
        found=f'unknown field "{name}"',
        expected=f"a field of {schema.name}{hint}",
        fix=_corrected(text, occurrence.line, name, near),
    )


def _syntax_error(error: Any, text: str, source: str, occurrence: Occurrence | None) -> ConfigSyntaxError:
    line = error.GetLine() or 1
    found = _END if _is_unclosed(error) else _word_at(text, line, error.GetColumn() or 1)
    expected = _expectation(str(error), occurrence)
    words = _words_of(occurrence) if "no value named" in str(error) else []
    return ConfigSyntaxError(
        source=source,
        line=line,
        field=TOP_LEVEL if occurrence is None else occurrence.path,
        found=found,
        expected=f"{expected}, or no comma before ]" if found == "]" else expected,
        fix=_corrected(text, line, found, _nearest(found, words)),
    )


def _occurrence(error: Any, index: PbtxtIndex) -> Occurrence | None:
    """The field that the parser was at."""
    if _is_unclosed(error):
        return index.occurrences[-1]
    return index.at(error.GetLine() or 1, error.GetColumn() or 1)


def _is_unclosed(error: Any) -> bool:
    return _UNCLOSED.search(str(error)) is not None


def _nearest(word: str, words: Sequence[str]) -> str:
    return next(iter(difflib.get_close_matches(word, words, n=1)), "")


def _corrected(text: str, line: int, wrong: str, right: str) -> str:
    """The line with the right word; empty if there is none."""
    written = text.split("\n")[line - 1].strip()
    return re.sub(rf"\b{re.escape(wrong)}\b", right, written, count=1)[:_MAX_SENTENCE] if right else ""


def _word_at(text: str, line: int, column: int) -> str:
    rest = text.split("\n")[line - 1][column - 1 :].strip()
    match = re.match(r"[\w.+-]+|\"[^\"]*\"?|'[^']*'?|.", rest)
    return match.group() if match else _END


def _expectation(sentence: str, occurrence: Occurrence | None) -> str:
    if "no value named" in sentence:
        return f"one of {_listed(_words_of(occurrence))}"
    for pattern, expectation in _EXPECTATIONS:
        match = pattern.search(sentence)
        if match:
            return match.expand(expectation)
    return f"valid protobuf text format; the parser says: {sentence.partition(' : ')[2]}"


def _words_of(occurrence: Occurrence | None) -> list[str]:
    """The words of an enum."""
    field: Descriptor = None if occurrence is None else occurrence.field
    return [] if field is None or field.enum_type is None else list(field.enum_type.values_by_name)


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)
