"""Following what changes in a repository."""

import shutil
from pathlib import Path

import pytest

from models.errors import ModelsError, NoVersionError
from tests.gateway.managing import BROKEN, CONFIG, add_model, managing, write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    add_model(tmp_path)
    return tmp_path


def move(source: Path, target: Path) -> Path:
    return source.rename(target)


async def test_a_new_model_and_a_new_version_are_served(root: Path) -> None:
    async with managing(root, "poll") as it:
        add_model(root, "new")
        add_model(root, "m", 2)
        await it.follow()

        assert (await it.answer("new"), await it.answer()) == ((1, 7), (2, 7))


async def test_what_did_not_change_is_not_loaded_again(root: Path) -> None:
    async with managing(root, "poll") as it:
        await it.answer()
        await it.follow()

        assert it.service.statistics()[0].inference_count == 1


async def test_what_still_changes_between_two_looks_is_not_loaded(root: Path) -> None:
    async with managing(root, "poll") as it:
        (root / "m" / "2").mkdir()
        for size in range(1, 6):
            write(root / "m" / "2" / "weights.bin", "x" * size)
            await it.poller.look()
            await it.poller.settled()
            assert (await it.answer())[0] == 1
        await it.follow()

        assert (await it.answer())[0] == 2


@pytest.mark.parametrize("name", ["model.onnx.part", ".model.onnx.aZ09_b", "2/model.tmp"])
async def test_a_file_whose_name_says_that_it_is_being_copied_holds_its_model_back(
    root: Path, name: str, caplog
) -> None:
    async with managing(root, "poll") as it:
        (root / "m" / "2").mkdir()
        write(root / "m" / name, "x")
        await it.follow()
        await it.follow()
        before = await it.answer()
        (root / "m" / name).unlink()
        await it.follow()

        assert (before[0], (await it.answer())[0]) == (1, 2)
        assert caplog.text.count(f"not loaded while '{name}' is being copied") == 1


async def test_a_broken_model_is_tried_again_when_it_changes_and_only_then(root: Path, caplog) -> None:
    add_model(root, "b", config=BROKEN)
    async with managing(root, "poll") as it:
        await it.follow()
        await it.follow()
        told = caplog.text.count("max_batch_sise: found")
        with pytest.raises(NoVersionError):
            await it.answer("b")
        add_model(root, "b")
        await it.follow()

        assert told == 1
        assert (await it.answer("b"), it.service.is_ready()) == ((1, 7), True)


async def test_a_change_for_the_worse_keeps_what_works(root: Path) -> None:
    async with managing(root, "poll") as it:
        add_model(root, config=BROKEN)
        await it.follow()
        kept = await it.answer()
        add_model(root, config=CONFIG.replace("max_batch_size: 4", "max_batch_size: 2"))
        await it.follow()

        assert kept == (1, 7)
        assert it.service.model("m").max_batch_rows == 2


async def test_a_model_that_is_gone_is_unloaded(root: Path) -> None:
    async with managing(root, "poll") as it:
        shutil.rmtree(root / "m")
        await it.follow()

        with pytest.raises(ModelsError):
            await it.answer()
        assert it.service.is_ready()


async def test_a_repository_that_cannot_be_read_for_a_while_changes_nothing(root: Path, caplog) -> None:
    async with managing(root, "poll") as it:
        away = move(root, root.with_suffix(".away"))
        await it.follow()
        await it.follow()
        during = await it.answer()
        move(away, root)
        await it.follow()

        assert during == (await it.answer()) == (1, 7)
        assert caplog.text.count("expected a directory with one subdirectory a model") == 1
