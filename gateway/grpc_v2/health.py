"""``grpc.health.v1.Health``: the method Check, without the messages, which have one field."""

from tritonclient.grpc import service_pb2

from gateway.engine import Engine
from gateway.grpc_v2.calls import Context, parse

_SERVING = b"\x08\x01"  # field 1, an enumeration
_NOT_SERVING = b"\x08\x02"


class Health:
    """As Triton has it: which service is asked for does not matter, and there is no Watch.

    Args:
        engine: Knows whether the server is ready.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def check(self, request: bytes, _context: Context) -> bytes:
        """Check. Raises UnreadableMessageError."""
        parse(service_pb2.ServerReadyRequest, request)  # which has no fields, so that it takes any message
        return _SERVING if self._engine.is_ready() else _NOT_SERVING
