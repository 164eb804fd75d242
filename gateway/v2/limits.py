"""How much the v2 surface takes, and how much of it on the event loop."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class V2Limits:
    """Limits of the surface.

    Attributes:
        max_body_bytes: Largest request body, as sent and unpacked, and largest tensor sent as JSON.
        inline_bytes: Largest JSON part that is parsed, and largest reply that is compressed, on the event loop.
        inline_elements: Most elements that are rendered as JSON, strings or classes on the event loop.
    """

    max_body_bytes: int = 64 << 20
    inline_bytes: int = 256 << 10
    inline_elements: int = 16384
