"""What a repository says about one model."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from models.errors import ModelsError
from models.spec import ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One model name of a repository.

    Attributes:
        name: The directory's name.
        versions: The versions that can be served, ascending.
        broken: The versions that should be served and have problems, ascending; if the model as a whole has, none.
        problems: What is wrong, each thing once; empty if everything can be served.
        notes: What was skipped or has no effect, in sentences for the log.
        required: Whether the server is ready without it; None: only while it is meant to be loaded.
        version_labels: Version numbers by label (``stable``, ``canary``), as shoal.toml gives them.
        is_described: What shoal.toml says could be read: `required` and `version_labels` hold.
        files: What each version consists of, beside its specification: a version whose entry differs has changed.
    """

    name: str
    versions: tuple[ModelSpec, ...] = ()
    broken: tuple[int, ...] = ()
    problems: tuple[ModelsError, ...] = ()
    notes: tuple[str, ...] = ()
    required: bool | None = None
    version_labels: Mapping[str, int] = field(default_factory=dict)
    is_described: bool = True
    files: Mapping[int, Hashable] = field(default_factory=dict)
