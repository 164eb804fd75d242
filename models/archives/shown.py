"""Values that strangers have written, as texts that are short, printable and made in no time, whatever they are."""

import json
import reprlib

from typing_extensions import override

_LARGEST_INT_BITS = 256


class _Repr(reprlib.Repr):
    """Looks at a few members of a few levels only: aliases of YAML may unfold to more than any memory holds."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxdict = self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = 4
        self.maxstring = self.maxother = 80

    @override
    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to write integers of thousands of digits, hexadecimal ones excepted.
        return repr(x) if x.bit_length() <= _LARGEST_INT_BITS else f"{hex(x)[:20]}..."


_REPR = _Repr()


def shown(value: object) -> str:
    """A value for a message: ASCII without control characters, at most about 80 characters."""
    text = _REPR.repr(value).encode("ascii", "backslashreplace").decode()
    return text if len(text) <= 83 else f"{text[:80]}..."


def shown_json(value: object) -> str:
    """A value of a JSON document for a message: as `shown`, in JSON's spelling."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return json.dumps(value)[:80]
