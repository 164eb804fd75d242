"""A small client of a running server, for the command line."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx


class ClientError(Exception):
    """The server cannot be reached or refuses; one line for a person."""


@dataclass(frozen=True, slots=True)
class Guess:
    """One predicted class."""

    label: str
    probability: float


class Client:
    """Speaks to one server.

    Args:
        url: Base URL, e.g. ``http://127.0.0.1:8000``.
        timeout_s: For each call.
    """

    def __init__(self, url: str, timeout_s: float = 60.0) -> None:
        self._url = (url if "://" in url else f"http://{url}").rstrip("/")
        self._timeout_s = timeout_s

    def classify(self, photo: Path, model: str | None = None, top_k: int = 5) -> Sequence[Guess]:
        """Labels of one photograph, most probable first."""
        path = "/classify" if model is None else f"/classify/{model}"
        answer = self._call("POST", path, params={"top_k": top_k}, content=photo.read_bytes())
        return [Guess(entry["label"], entry["probability"]) for entry in answer["predictions"]]

    def models(self) -> Sequence[dict[str, Any]]:
        """All models of the server."""
        models: Sequence[dict[str, Any]] = self._call("GET", "/models")
        return models

    def _call(self, method: str, path: str, **details: Any) -> Any:
        try:
            response = httpx.request(method, self._url + path, timeout=self._timeout_s, **details)
        except httpx.HTTPError as error:
            raise ClientError(f"cannot reach {self._url} ({error}); is `shoal serve` running there?") from None
        try:
            answer = response.json()
        except ValueError:
            raise ClientError(f"{self._url} answered {response.status_code} without JSON; is it a Shoal?") from None
        if response.is_error:
            raise ClientError(str(answer.get("error", answer) if isinstance(answer, dict) else answer))
        return answer
