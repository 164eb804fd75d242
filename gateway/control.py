"""What may be done to models while the server runs; the surfaces' management verbs end here."""

import enum
from collections.abc import Sequence
from typing import NamedTuple, Protocol


class VersionState(enum.Enum):
    """What a version is doing, in the words of Triton's repository index."""

    LOADING = "LOADING"
    READY = "READY"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


class IndexEntry(NamedTuple):
    """One version of one model; a model of which nothing was ever loaded has neither version nor state.

    Attributes:
        model: Its name.
        version: Its number.
        state: What it is doing.
        reason: Why it is not ready; empty if it is, or if there is nothing to say.
    """

    model: str
    version: int | None = None
    state: VersionState | None = None
    reason: str = ""


class ModelControl(Protocol):
    """Loads, unloads and scales models."""

    async def index(self) -> Sequence[IndexEntry]:
        """Every known version, by model and version; looks into the repositories for models that are not loaded."""
        ...

    async def load(self, model: str, override: str | None = None) -> None:
        """Load a model, or load it again; returns when it is ready. What is served now goes on until then.

        Args:
            model: Its name in a repository.
            override: A configuration, as JSON with the field names of config.pbtxt, instead of the file's; it holds
                until the next load.

        Raises:
            ControlNotAllowedError: The control mode forbids it.
            UnknownModelError: No repository has it.
            LoadFailedError: It cannot be loaded; says why. What was served before goes on.
        """
        ...

    async def unload(self, model: str, *, dependents: bool = False) -> None:
        """Take a model out of service; returns when all that was admitted has been answered.

        Args:
            model: Its name; an unknown one is no error, as in Triton.
            dependents: Unload the models of an ensemble with it, unless something else needs them.

        Raises:
            ControlNotAllowedError: The control mode forbids it.
        """
        ...

    async def scale(self, model: str, version: int | None, instances: int) -> None:
        """Change the number of a version's instances; 0 takes it out of service but keeps it known.

        Returns when the new instances serve, or, for 0, when all that was admitted has been answered.

        Raises:
            ControlNotAllowedError: The control mode forbids it.
            ModelUnavailableError: No such model or version.
            LoadFailedError: The new instances cannot be made ready; the old ones go on.
        """
        ...
