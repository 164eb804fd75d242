"""The restrictions of the v2 API for the paths beside it, so that nothing there is a way around them."""

from starlette.types import ASGIApp

from gateway.asgi import Receive, Scope, Send, error_reply, send_reply
from gateway.errors import RestrictedError
from gateway.v2.restricted import RestrictedFeatures


class RestrictedRest:
    """Lets a call pass that brings the header of its category.

    Args:
        app: What answers it then.
        restricted: The headers.
    """

    def __init__(self, app: ASGIApp, restricted: RestrictedFeatures) -> None:
        self._app = app
        self._restricted = restricted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        category = _category_of(scope.get("path", ""))
        if category is not None:
            try:
                self._restricted.check(category, scope["headers"])
            except RestrictedError as error:
                return await send_reply(send, error_reply(403, str(error)))
        return await self._app(scope, receive, send)


def _category_of(path: str) -> str | None:
    if path.startswith("/classify"):
        return "inference"
    if not path.startswith("/models"):
        return None
    if path.endswith("/scale"):
        return "model-repository"
    return "model-config" if path.endswith("/config") else "metadata"
