"""How much a message unpacks to, told before it is.

An empty field takes two bytes of a message, and some hundred in memory; a number in a typed list one byte, and up to
eight. Only raw contents do not grow; so what is counted is the fields around them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from models.errors import MalformedRequestError

MAX_FIELDS = 2_000_000
"""Of one message; each string of a typed list is one, each number of a shape, and 32 bytes of other typed contents."""


@dataclass(frozen=True, slots=True)
class _Inner:
    """What is inside a field.

    Attributes:
        bytes_per_field: How many of its bytes count as one field.
        is_message: Whether it has fields of its own that count, too.
        fields: Those of them that have something inside that counts, by number.
    """

    bytes_per_field: int
    is_message: bool = True
    fields: "Mapping[int, _Inner]" = field(default_factory=dict)


_SHAPE, _CONTENTS = _Inner(1, is_message=False), _Inner(32)
_REQUEST = _Inner(1 << 32, fields={5: _Inner(1 << 32, fields={3: _SHAPE, 5: _CONTENTS})})

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def check_effort(data: bytes, max_fields: int = MAX_FIELDS) -> None:
    """Refuse a `ModelInferRequest` of too many fields. Bytes that are no message are none of its business.

    Raises:
        MalformedRequestError: There are more than `max_fields`.
    """
    try:
        _count(memoryview(data), _REQUEST, max_fields)
    except IndexError:  # it ends too early, which parsing will tell
        return


def _count(data: memoryview, around: _Inner, left: int) -> int:
    """How many fields are left of those that may be there."""
    position, size = 0, len(data)
    while position < size:
        left = _spend(left, 1)
        tag, position = _varint(data, position)
        if tag & 7 == _BYTES:
            length, position = _varint(data, position)
            inner = around.fields.get(tag >> 3)
            if inner is not None:
                left = _spend(left, length // inner.bytes_per_field)
                left = _count(data[position : position + length], inner, left) if inner.is_message else left
            position += length
        else:
            position = _end_of_number(data, tag & 7, position)
    return left


def _spend(left: int, fields: int) -> int:
    if left < fields:
        raise MalformedRequestError("found too many fields in a large request, expected larger tensors instead")
    return left - fields


def _end_of_number(data: memoryview, kind: int, position: int) -> int:
    if kind == _VARINT:
        return _varint(data, position)[1]
    if kind == _FIXED64:
        return position + 8
    if kind == _FIXED32:
        return position + 4
    raise IndexError  # groups, which this protocol does not have


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """A number and where the next one begins. Raises IndexError, also for one of more than 64 bits."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    raise IndexError
