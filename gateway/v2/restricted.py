"""Triton's restricted API: calls of a category that need a header."""

import hmac
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from gateway.errors import RestrictedError

CATEGORIES = (
    "health",
    "metadata",
    "inference",
    "shared-memory",
    "model-config",
    "model-repository",
    "statistics",
    "trace",
    "logging",
)
"""What can be restricted, in Triton's words."""


class RestrictedFeatures:
    """Which header a request of a category must bring.

    Args:
        headers: Name and value of the header by category. Categories that are not there are free to all.
    """

    def __init__(self, headers: Mapping[str, tuple[str, str]] | None = None) -> None:
        self._headers = dict(headers or {})

    @classmethod
    def parse(cls, groups: Sequence[str]) -> Self:
        """Read groups such as ``health,metadata:KEY=VALUE``.

        Raises:
            ValueError: Not of this form, an unknown category, or one that is in two groups.
        """
        headers: dict[str, tuple[str, str]] = {}
        for group in groups:
            names, _, header = group.partition(":")
            key, equals, value = header.partition("=")
            if not key or not equals or not value:
                raise ValueError(f"found {group[:64]!r}, expected <category>,<category>:<header>=<value>")
            for name in names.split(","):
                _check(name, headers)
                headers[name] = (key, value)
        return cls(headers)

    def __bool__(self) -> bool:
        return bool(self._headers)

    def header_for(self, category: str) -> tuple[str, str] | None:
        """Name and value of the header that the category needs; None: it needs none."""
        return self._headers.get(category)

    def check(self, category: str | None, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Let a request pass.

        Args:
            category: What it belongs to; None: nothing that can be restricted.
            headers: All of its headers, names in lower case; of several of one name the first counts.

        Raises:
            RestrictedError: It lacks the header of its category, or the header's value is another one.
        """
        header = None if category is None else self._headers.get(category)
        if header is None:
            return
        name = header[0].lower().encode()
        if not is_same(next((value for key, value in headers if key == name), None), header[1]):
            raise RestrictedError(header[0])


def is_same(found: bytes | None, expected: str) -> bool:
    """Whether a header has the value that it must have; how long that takes says nothing about the value."""
    return found is not None and hmac.compare_digest(found, expected.encode("utf-8"))


def _check(name: str, taken: Mapping[str, object]) -> None:
    if name not in CATEGORIES:
        raise ValueError(f"found the category {name[:64]!r}, expected one of {', '.join(CATEGORIES)}")
    if name in taken:
        raise ValueError(f"found the category {name!r} twice, expected each in one group only")
