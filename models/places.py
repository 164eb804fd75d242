"""Where a model is: a directory in Triton's layout, an archive, ..."""

from collections.abc import Hashable
from typing import Protocol

from models.model_entry import ModelEntry


class Place(Protocol):
    """One model of a repository. All methods but `name` block on reads of files."""

    @property
    def name(self) -> str:
        """The model's name."""
        ...

    def fingerprint(self) -> Hashable:
        """Changes whenever something that belongs to the model does; cheap enough to be taken every few seconds.

        Raises:
            OSError: A file cannot be looked at.
        """
        ...

    def unfinished(self) -> str:
        """A file that is still being copied, as far as names tell; empty if there is none."""
        ...

    def read(self, override: str | None = None) -> ModelEntry:
        """Read and check everything; whatever is wrong is in the entry's problems.

        Args:
            override: A configuration instead of the one that is there: JSON with the field names of config.pbtxt.
        """
        ...
