"""What a configuration in JSON has and the schema has not.

Protobuf's own parser stops at the first such thing, names no place, and takes an empty list for an empty message.
"""

import difflib
import json
from collections.abc import Iterator
from typing import Any

from models.config_lines import TOP_LEVEL
from models.errors import ConfigError
from models.pbtxt_index import Descriptor


def strangers(text: str, source: str, schema: Descriptor) -> list[ConfigError]:
    """An error for each unknown field and for each message that is no object.

    None if the text is no JSON: about that the real parser has the better sentence.

    Args:
        text: JSON.
        source: What it is, for messages.
        schema: Of the message.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return list(_walk(value, schema, "", source))


def _walk(value: Any, schema: Descriptor, path: str, source: str) -> Iterator[ConfigError]:
    """Below a message, as deep as the schema: what is unknown is not looked into."""
    if not isinstance(value, dict):
        found = f"{json.dumps(value)[:64]}"
        yield ConfigError(source=source, field=path or TOP_LEVEL, found=found, expected="an object in braces")
        return
    for name, member in value.items():
        here = f"{path}.{name}"[:256] if path else name[:256]
        field = schema.fields_by_name.get(name) or schema.fields_by_camelcase_name.get(name)
        if field is None:
            yield _unknown(name, schema, here, source)
        elif field.message_type is not None and member is not None:  # null stands for nothing said
            for place, element, inner in _messages(member, field, here):
                yield from _walk(element, inner, place, source)


def _messages(member: Any, field: Descriptor, path: str) -> Iterator[tuple[str, Any, Descriptor]]:
    """The messages in a field with their paths and schemas."""
    if field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"].message_type
        if inner is not None and isinstance(member, dict):
            yield from ((f"{path}[{key[:64]}]", element, inner) for key, element in member.items())
    elif field.is_repeated:
        if isinstance(member, list):
            yield from ((f"{path}[{index}]", element, field.message_type) for index, element in enumerate(member))
    else:
        yield path, member, field.message_type


def _unknown(name: str, schema: Descriptor, path: str, source: str) -> ConfigError:
    names = list(schema.fields_by_name)
    similar = difflib.get_close_matches(name[:64], names, n=1)
    hint = f'; did you mean "{similar[0]}"?' if similar else f": {', '.join(names)}"
    return ConfigError(
        source=source, field=path, found=f'unknown field "{name[:64]}"', expected=f"a field of {schema.name}{hint}"
    )
