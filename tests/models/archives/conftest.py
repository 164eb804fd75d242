"""A store and the folder beside it in which archives are unpacked."""

from pathlib import Path

import pytest


@pytest.fixture
def store(tmp_path: Path) -> Path:
    directory = tmp_path / "store"
    directory.mkdir()
    return directory
