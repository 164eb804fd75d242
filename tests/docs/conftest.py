"""The pages speak of defaults, so a developer's own variables must not be seen."""

import os

import pytest


@pytest.fixture(autouse=True)
def no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in tuple(os.environ):
        if name.startswith("SHOAL_"):
            monkeypatch.delenv(name)
