"""Writes the example repositories that come with the package."""

from functools import partial
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from models.zoo.embedded import MODEL_NAME, write_model, write_models

ENSEMBLE = "photo-labels"
"""The ensemble, and the directory of this package that holds it."""


def write_ensemble(directory: Path) -> Path:
    """Write an ensemble that labels photographs, and the three models that it consists of.

    Args:
        directory: The repository; made if missing. Other models in it are left alone.

    Returns:
        The ensemble's directory.

    Raises:
        RepositoryError: One of the models is there already, or cannot be written.
    """
    source = resources.files("models.examples").joinpath(ENSEMBLE)
    names = sorted(entry.name for entry in source.iterdir() if entry.is_dir())
    of_example = {name: partial(_write_model, source.joinpath(name)) for name in names}
    write_models(directory, {MODEL_NAME: write_model, **of_example})
    return directory / ENSEMBLE


def _write_model(source: Traversable, target: Path) -> None:
    (target / "1").mkdir()
    for file in ("config.pbtxt", "1/model.py"):
        data = source.joinpath(file)
        if data.is_file():
            (target / file).write_bytes(data.read_bytes())
    if source.name == "topk":
        labels = resources.files("models.zoo").joinpath("imagenet_labels.txt")
        (target / "1" / "labels.txt").write_bytes(labels.read_bytes())
