"""What keeps a trace from being judged.

FidelityError
├── UnreadableTraceError  not a trace, or a damaged one
└── UnknownServerError    a server without a policy here
"""

from collections.abc import Iterable


class FidelityError(Exception):
    """Base: one sentence, with the file it is about."""


class UnreadableTraceError(FidelityError):
    """The file is not a trace.

    Attributes:
        source: The file.
        reason: What was found and what was expected.
    """

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"{source}: {reason}")
        self.source = source
        self.reason = reason


class UnknownServerError(FidelityError):
    """The trace is of a server that has no policy here.

    Attributes:
        source: The file.
        server: The server's name as recorded.
    """

    def __init__(self, source: str, server: str, known: Iterable[str]) -> None:
        super().__init__(f"{source}: server is '{server}', expected one of {', '.join(known)}")
        self.source = source
        self.server = server
