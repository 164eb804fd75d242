"""What `shoal serve --try PHOTO` does when the server is ready: one real call over HTTP."""

import asyncio
from pathlib import Path

from rich.console import Console

from gateway.client import Client, ClientError


class Demo:
    """Classifies one photograph and shows how to do the same.

    Args:
        photo: An encoded image.
        console: Where to print.
    """

    def __init__(self, photo: Path, console: Console) -> None:
        self._photo = photo
        self._console = console

    async def __call__(self, url: str) -> None:
        """Called with the server's URL."""
        try:
            guesses = await asyncio.to_thread(Client(url).classify, self._photo, top_k=1)
        except ClientError as error:
            self._say(f"could not classify {self._photo}: {error}")
            return
        self._say(f"{self._photo.name} shows: {guesses[0].label} ({guesses[0].probability:.1%})")
        self._say(f"server:  {url}  (models: {url}/models, API: {url}/docs)")
        self._say(f"try it:  curl --data-binary @{self._photo} {url}/classify")
        self._say("stop:    Ctrl-C")

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
