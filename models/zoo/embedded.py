"""The embedded model as an ordinary model repository in Triton's layout, written to wherever it is wanted."""

import contextlib
import hashlib
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from pathlib import Path

from models.errors import RepositoryError
from models.zoo.weights import WEIGHTS_SHA256

MODEL_NAME = "efficientnet-lite0"

# Raise it when the graph changes; changes of the data files are noticed without it.
_BUILDER_VERSION = 1

# Where it goes in the model's directory: the file of this package that it is.
_DATA_FILES = {"config.pbtxt": "config.pbtxt", "shoal.toml": "shoal.toml", "labels.txt": "imagenet_labels.txt"}


def write_repository(directory: Path) -> Path:
    """Write ``<directory>/efficientnet-lite0/{config.pbtxt,shoal.toml,labels.txt,1/model.onnx}``, all of it or nothing.

    Other models in the same repository are left alone.

    Args:
        directory: The repository; made if missing.

    Returns:
        The repository, i.e. `directory`.

    Raises:
        RepositoryError: The model's directory exists and is not empty, it cannot be written, or the weights are
            missing or damaged.
    """
    write_models(directory, {MODEL_NAME: write_model})
    return directory


def write_models(directory: Path, writers: Mapping[str, Callable[[Path], None]]) -> None:
    """Write new models into a repository, each in one step; none if one of the names is taken.

    Args:
        directory: The repository; made if missing.
        writers: By model name, what fills its empty directory.

    Raises:
        RepositoryError: A model's directory exists and is not empty, or cannot be written.
    """
    for name in writers:
        with _sentences(name):
            _check_free(directory / name)
    for name, write in writers.items():
        with _sentences(name), _appearing(directory / name) as staging:
            write(staging)


def _check_free(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RepositoryError(
            f"{target.name}: found files in the repository already, expected none; remove that directory, or choose "
            "another repository"
        )


@contextlib.contextmanager
def _sentences(name: str) -> Iterator[None]:
    """Turns the file system's errors into ours."""
    try:
        yield
    except OSError as error:
        raise RepositoryError(f"{name}: cannot be written to the repository: {error.strerror}") from error


def ensure_cached(cache_dir: Path) -> Path:
    """The embedded model's repository below `cache_dir`, built by the first call and shared by all later ones.

    Several processes may call this at once: each sees a complete repository.

    Raises:
        RepositoryError: It cannot be written, or the weights are missing or damaged.
    """
    repository = cache_dir / _cache_name()
    if repository.is_dir():
        return repository
    try:
        with _appearing(repository) as staging:
            write_repository(staging)
    except OSError as error:
        # Another process was faster, and its result is as good.
        if not repository.is_dir():
            raise RepositoryError(f"{MODEL_NAME}: the cache directory cannot be written: {error.strerror}") from error
    return repository


def _cache_name() -> str:
    content = hashlib.sha256()
    for source in _DATA_FILES.values():
        content.update(_read(source))
    return f"{MODEL_NAME}-{WEIGHTS_SHA256[:8]}-v{_BUILDER_VERSION}-{content.hexdigest()[:8]}"


def write_model(directory: Path) -> None:
    """Fill the model's directory. Raises RepositoryError and OSError."""
    from models.zoo import lite0  # noqa: PLC0415 - onnx takes 0.1 s to import; only the first start needs it

    for name, source in _DATA_FILES.items():
        (directory / name).write_bytes(_read(source))
    version = directory / "1"
    version.mkdir()
    lite0.build(version / "model.onnx")


def _read(source: str) -> bytes:
    return resources.files("models.zoo").joinpath(source).read_bytes()


@contextlib.contextmanager
def _appearing(target: Path) -> Iterator[Path]:
    """A directory to fill that becomes `target` in one step at the end, or vanishes on any error.

    Raises:
        OSError: `target` exists by then and is not empty, or the file system refuses.
    """
    staging = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    staging.mkdir(parents=True)
    try:
        yield staging
        staging.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
