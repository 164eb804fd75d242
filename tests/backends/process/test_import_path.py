"""Model code sees its own packages, and ours are out of its way."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backends.errors import LoadError
from backends.ports import Placement
from tests.backends.builders import model, payload, save_lookup
from tests.backends.process.builders import loaded, remote_executors, save_code, started_worker

pytestmark = pytest.mark.slow

in_thread: Callable[..., Any] = asyncio.to_thread

OURS = ["backends", "batching", "gateway", "loadtest", "models", "tests"]


def save(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize(("name", "place"), [("models", "m"), *((name, "m/1") for name in OURS)])
async def test_a_package_beside_the_model_is_found_though_it_is_called_like_ours(tmp_path: Path, name: str, place: str):
    save(tmp_path / place / name / "__init__.py", "from .inner import FACTOR")
    save(tmp_path / place / name / "inner.py", "FACTOR = 7")
    code = f"""
from {name} import FACTOR

class Model:
    def execute(self, inputs):
        import {name}.inner as late
        return {{"y": inputs["x"] * FACTOR * late.FACTOR}}
"""
    async with remote_executors(save_code(tmp_path, code)) as (executor,):
        await in_thread(executor.load)
        outputs = await in_thread(executor.run, payload(2), 1)

    assert outputs["y"].tolist() == [[98, 98]]


@pytest.mark.parametrize("name", OURS)
async def test_ours_cannot_be_imported_by_model_code(tmp_path: Path, name: str):
    async with started_worker() as worker:
        with pytest.raises(LoadError, match=f"'{name}'"):
            await loaded(worker, save_code(tmp_path, f"import {name}"))


async def test_a_backend_can_be_imported_when_model_code_has_taken_our_names(tmp_path: Path):
    save(tmp_path / "m" / "1" / "models.py", "MINE = True")
    save(tmp_path / "m" / "1" / "backends" / "__init__.py", "MINE = True")
    code = """
import backends, models

class Model:
    def execute(self, inputs):
        import backends as again, models as both
        return {"y": inputs["x"] + (again.MINE and both.MINE and again is backends and both is models)}
"""
    async with started_worker() as worker:
        mine = await loaded(worker, save_code(tmp_path, code))
        onnx = await loaded(worker, model(backend="onnxruntime", file=save_lookup(tmp_path / "model.onnx")))
        outputs = [await in_thread(executor.run, payload(2), 1) for executor in (mine, onnx)]

    assert [answer["y"].tolist() for answer in outputs] == [[[3, 3]], [[2, 2]]]


async def test_a_namespace_package_is_found_too(tmp_path: Path):
    save(tmp_path / "m" / "models" / "inner.py", "FACTOR = 7")
    spec = save_code(tmp_path, "from models.inner import FACTOR\ndef execute(inputs):\n    return {'y': inputs['x']}")
    async with started_worker() as worker:
        instances = await worker.assign(spec, Placement())

        await in_thread(instances[0][0].load)


async def test_processes_that_model_code_spawns_import_its_packages_too(tmp_path: Path):
    save(tmp_path / "m" / "1" / "models" / "__init__.py", "def double(value):\n    return 2 * value")
    code = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from models import double

class Model:
    def execute(self, inputs):
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            return {"y": pool.submit(double, inputs["x"]).result()}
"""
    async with remote_executors(save_code(tmp_path, code)) as (executor,):
        await in_thread(executor.load)
        outputs = await in_thread(executor.run, payload(2), 1)

    assert outputs["y"].tolist() == [[4, 4]]


def test_ours_are_hidden_too_where_they_are_installed_among_others_and_can_import_each_other(tmp_path: Path):
    site = tmp_path / "site-packages"
    later = "def later():\n    from models import extra\n    return extra.OURS"
    save(site / "models" / "__init__.py", f"OURS = True\n{later}")
    save(site / "models" / "extra.py", "import models\nOURS = models.OURS")
    save(site / "other.py", "")
    save(tmp_path / "mine" / "models.py", "OURS = False")
    code = f"""
import importlib, sys
from pathlib import Path
from backends.process.import_path import OwnPackages, user_code_path

sys.path.insert(0, {str(site)!r})
import models as ours
packages = OwnPackages(Path({str(site)!r}))
packages.hide()
import other
try:
    import models
except ModuleNotFoundError as error:
    assert error.name == "models"
else:
    raise AssertionError(models.__file__)
user_code_path(Path({str(tmp_path / "mine")!r}))
importlib.invalidate_caches()
import models
assert models.OURS is False
with packages.shown():
    import models as shown
    assert shown is ours and ours.OURS is True
assert ours.later() is True
import models as again
assert again is models
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)

    assert done.stderr == ""
