"""What of the v2 surfaces can be set, over HTTP and gRPC alike."""

from dataclasses import dataclass, field

from gateway.v2.forwarding import HeaderForwarding
from gateway.v2.logging_settings import LogSettings
from gateway.v2.restricted import RestrictedFeatures
from gateway.v2.trace import TraceSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SurfaceSettings:
    """One for each surface; `trace` and `logs` are the same objects for both.

    Attributes:
        server_name: What the server's metadata call it.
        restricted: Calls that need a header.
        forwarding: Headers that models see; None: none.
        trace: The trace settings.
        logs: The log settings.
    """

    server_name: str = "shoal"
    restricted: RestrictedFeatures = field(default_factory=RestrictedFeatures)
    forwarding: HeaderForwarding | None = None
    trace: TraceSettings = field(default_factory=TraceSettings)
    logs: LogSettings = field(default_factory=LogSettings)
