"""Errors of this package as plain values, for the way from where they happen to who is told."""

import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from backends import errors
from backends.errors import BackendError
from backends.process.slots import ProtocolError

_ERRORS = {
    error.__name__: error
    for error in vars(errors).values()
    if isinstance(error, type) and issubclass(error, BackendError)
}
_MAX_TEXT = 10_000
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
_ESCAPES = {code: ascii(chr(code))[1:-1] for code in _CONTROLS if chr(code) not in "\t\n"}


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of this package on its way: its class, its text, its fields."""

    error_type: str
    text: str
    fields: Mapping[str, str | int]
    kind: Literal["failure"] = "failure"

    @staticmethod
    def of(error: BaseException, fallback: type[BackendError]) -> "Failure":
        """Describe an error; one that is not of this package becomes a `fallback` with its type and text."""
        if not isinstance(error, BackendError):
            return Failure(fallback.__name__, printable(describe(error)), {})
        known = next(base.__name__ for base in type(error).__mro__ if base.__name__ in _ERRORS)
        fields = {name: value for name, value in vars(error).items() if isinstance(value, str | int)}
        return Failure(known, printable(str(error)), fields)

    def error(self) -> BackendError:
        """The error again. Raises ProtocolError for a class that does not exist."""
        known = _ERRORS.get(self.error_type)
        if known is None:
            raise ProtocolError(f"unknown error {self.error_type!r}")
        error = known.__new__(known, self.text)  # __init__ may take the fields, and has made the text of them
        vars(error).update(self.fields)
        return error


def describe(error: BaseException) -> str:
    """The error's type and text; model code may raise errors that cannot even be printed with `str`."""
    return "".join(traceback.format_exception_only(error)).strip()


def printable(text: str) -> str:
    """The text for logs and answers: control characters, which would steer a terminal, as Python writes them."""
    whole = text[:_MAX_TEXT].encode(errors="replace").decode()  # names of files may hold half characters
    return whole.translate(_ESCAPES)
