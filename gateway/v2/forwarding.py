"""Headers of a request that its model sees as parameters."""

import re
from collections.abc import Iterable
from typing import Self

from models.errors import MalformedRequestError


class HeaderForwarding:
    """Chooses headers by their names.

    Args:
        pattern: What the whole name must match, in any case.
    """

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern

    @classmethod
    def parse(cls, pattern: str) -> Self:
        """From the text of a setting. Raises ValueError when it is no regular expression."""
        try:
            return cls(re.compile(pattern, re.IGNORECASE))
        except re.error as error:
            raise ValueError(f"found {pattern[:64]!r}, expected a regular expression: {error}") from None

    def parameters(self, headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
        """The chosen headers as parameters; of a repeated header the last value.

        Raises:
            MalformedRequestError: A value is no text.
        """
        chosen: dict[str, str] = {}
        for raw_name, raw_value in headers:
            name = raw_name.decode("latin-1")
            if self._pattern.fullmatch(name):
                chosen[name] = _text(name, raw_value)
        return chosen


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise MalformedRequestError(f"header '{name}' is no UTF-8, expected text that can be forwarded") from None
