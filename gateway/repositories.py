"""The repositories that the settings name, as one function that looks where models are."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from backends.triton_python.completion import complete
from gateway.settings import Settings
from models.archives.folders import PrivateFolders
from models.archives.known_names import KnownNames
from models.archives.store import archive_places
from models.errors import RepositoryError
from models.places import Place
from models.remote import Mirror, is_remote
from models.repository import Repository
from models.zoo.embedded import ensure_cached

_log = logging.getLogger(__name__)

Look = Callable[[], Mapping[str, Place]]


def open_repositories(settings: Settings) -> Look:
    """Gives what looks into the configured repositories, or at the embedded model, built if need be. Blocks.

    Raises:
        RepositoryError: The embedded model cannot be built, or a URL is none that is served. What the result raises,
            if a repository cannot be read.
    """
    mirrors = {
        text: Mirror(text, settings.cache_dir / "repositories") for text in settings.model_repository if is_remote(text)
    }
    roots = [mirrors[text].path if text in mirrors else Path(text) for text in settings.model_repository]
    folders = PrivateFolders(settings.cache_dir / "archives")
    archives = partial(archive_places, folders=folders, names=KnownNames())
    repository = Repository(roots or (_embedded(settings.cache_dir),), completer=complete, find_more=[archives])

    def look() -> Mapping[str, Place]:
        for mirror in mirrors.values():
            mirror.sync()
        return repository.places()

    return look


def _embedded(cache_dir: Path) -> Path:
    try:
        return ensure_cached(cache_dir)
    except RepositoryError as error:
        raise RepositoryError(f"{error}: {cache_dir}; choose another with --cache-dir") from None
