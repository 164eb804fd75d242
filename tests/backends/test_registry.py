"""From the backend word to executors."""

import pytest

from backends.errors import LoadError
from backends.registry import FACTORIES, create_executors
from tests.backends.builders import model


@pytest.mark.parametrize("backend", sorted(FACTORIES))
def test_every_backend_makes_one_executor_for_each_instance(backend: str):
    executors = create_executors(model(backend=backend), 3, 2)

    assert len(set(map(id, executors))) == 3


def test_an_unknown_backend_is_refused_with_the_known_ones():
    with pytest.raises(LoadError, match="model 'm': unknown backend 'caffe', expected one of fake, onnxruntime"):
        create_executors(model(backend="caffe"), 1, 1)


def test_a_backend_whose_engine_is_missing_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(FACTORIES, "caffe", "engine_that_is_not_installed:create")

    with pytest.raises(LoadError, match=r"backend 'caffe' cannot be imported .*engine_that_is_not_installed"):
        create_executors(model(backend="caffe"), 1, 1)
