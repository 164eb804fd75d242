"""Handlers where they run in production: in a worker process, where Shoal's own packages are hidden."""

import asyncio
from pathlib import Path

import pytest

from backends.errors import PredictionError
from backends.registry import Hosting, hosting
from models.handler_rows import decode_response
from tests.backends.process.builders import remote_executors
from tests.backends.torchserve.builders import archive, elements, envelope, run

pytestmark = pytest.mark.slow


async def test_an_archive_may_bring_packages_with_our_names(tmp_path: Path) -> None:
    code = """\
        import models, backends
        from models.colours import name
        from ts.torch_handler.base_handler import BaseHandler

        class Handler(BaseHandler):
            def initialize(self, context):
                import models.shades
                self.name = f"{name} {models.shades.name} {models.__name__} {backends.where}"
            def preprocess(self, data):
                return data
            def inference(self, data):
                return data
            def postprocess(self, data):
                return [self.name] * len(data)
        """
    files = {
        "models/__init__.py": "",
        "models/colours.py": "name = 'red'",
        "models/shades.py": "from models.colours import name as base\nname = f'dark {base}'",
        "backends.py": "where = 'here'",
    }

    async with remote_executors(archive(tmp_path, code, files=files)) as (executor,):
        await asyncio.to_thread(executor.load)
        answers = await asyncio.to_thread(run, executor, b"")

    assert answers == [b"red dark red models here"]


async def test_rows_errors_and_envelopes_cross_to_the_worker_and_back(tmp_path: Path) -> None:
    code = """\
        def handle(data, context):
            if data is not None:
                context.set_response_status(415, "", 1)
                return [context.get_request_header(0, "X-Wish"), "no picture", {1}]
        """

    async with remote_executors(archive(tmp_path, code)) as (executor,):
        await asyncio.to_thread(executor.load)
        first, second, third = await asyncio.to_thread(run, executor, envelope({"X-Wish": "red"}), b"", b"")

    assert isinstance(first, bytes)
    assert decode_response(first).body == b"red"
    assert isinstance(second, PredictionError)
    assert (second.status, str(second)) == (415, "no picture")
    assert "the handler answered with set" in str(third)


async def test_a_prediction_exception_crosses_with_its_status(tmp_path: Path) -> None:
    code = """\
        from ts.utils.util import PredictionException
        def handle(data, context):
            if data is not None:
                raise PredictionException("too dark", 422)
        """

    async with remote_executors(archive(tmp_path, code)) as (executor,):
        await asyncio.to_thread(executor.load)
        with pytest.raises(PredictionError, match="too dark") as caught:
            await asyncio.to_thread(executor.run, elements(b""), 1)

    assert caught.value.status == 422


@pytest.mark.parametrize("is_gpu", [False, True])
def test_every_instance_has_a_process_of_its_own(tmp_path: Path, is_gpu: bool) -> None:
    where = hosting(archive(tmp_path), is_gpu=is_gpu)

    assert where is Hosting.INSTANCE_PROCESS
