"""From the backend word to executors."""

import pytest

from backends.errors import LoadError
from backends.ports import Placement
from backends.registry import BACKENDS, Backend, Hosting, create_executors
from tests.backends.builders import model


@pytest.mark.parametrize("backend", ["fake", "onnxruntime"])
def test_every_backend_makes_one_executor_for_each_instance(backend: str):
    lanes = create_executors(model(backend=backend), Placement(instances=3, cores=2))

    assert len({id(executor) for executors in lanes for executor in executors}) == 3


def test_an_unknown_backend_is_refused_with_the_known_ones():
    with pytest.raises(LoadError, match="model 'm': unknown backend 'caffe', expected one of fake, onnxruntime"):
        create_executors(model(backend="caffe"), Placement())


def test_a_backend_whose_engine_is_missing_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(
        BACKENDS, "caffe", Backend("engine_that_is_not_installed:create", Hosting.THREAD, Hosting.THREAD)
    )

    with pytest.raises(LoadError, match=r"backend 'caffe' cannot be imported .*engine_that_is_not_installed"):
        create_executors(model(backend="caffe"), Placement())
