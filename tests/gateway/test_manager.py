"""Loading, reloading, unloading and scaling while requests come."""

import asyncio
from pathlib import Path

import pytest

from backends.errors import NoInstanceError
from models.errors import (
    ControlNotAllowedError,
    LoadFailedError,
    ModelNotFoundError,
    NotReadyYetError,
    NoVersionError,
    UnknownModelError,
    VersionNotFoundError,
    VersionNotReadyError,
)
from models.inference import ClassifyRequest
from tests.gateway.managing import BROKEN, CONFIG, Managed, add_model, managing, write

SLOW = CONFIG + 'parameters { key: "service_base_us" value: { string_value: "50000" } }\n'
WRONG = CONFIG + 'parameters { key: "service_row_us" value: { string_value: "x" } }\n'
ALL = "version_policy { all { } }\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    add_model(tmp_path)
    return tmp_path


async def test_a_model_is_loaded_and_unloaded_on_demand(root: Path) -> None:
    async with managing(root, load=()) as it:
        unloaded = await it.states()
        await it.manager.load("m")
        loaded, answer = await it.states(), await it.answer()
        await it.manager.unload("m")

        assert unloaded == [("m", None, None)]
        assert (loaded, answer) == ([("m", 1, "READY")], (1, 7))
        assert await it.states() == [("m", 1, "UNAVAILABLE")]
        assert await it.reason() == "unloaded"


async def test_an_unloaded_model_answers_as_tritons_does_and_can_come_back(root: Path) -> None:
    async with managing(root) as it:
        await it.manager.unload("m")
        with pytest.raises(NoVersionError):
            await it.answer()
        with pytest.raises(VersionNotReadyError):
            await it.answer(version=1)
        await it.manager.load("m")

        assert await it.answer() == (1, 7)


async def test_a_new_version_takes_over_and_the_old_one_goes(root: Path) -> None:
    async with managing(root) as it:
        add_model(root, "m", 2)
        await it.manager.load("m")
        answer = await it.answer()
        await it.manager.drain()

        assert answer[0] == 2
        assert await it.states() == [("m", 1, "UNAVAILABLE"), ("m", 2, "READY")]


async def test_requests_in_flight_finish_on_the_version_that_took_them(root: Path) -> None:
    add_model(root, config=SLOW)
    async with managing(root) as it:
        before = [asyncio.create_task(it.answer(value=value)) for value in range(8)]
        await asyncio.sleep(0)
        add_model(root, "m", 2)
        await it.manager.load("m")

        assert {(await task)[0] for task in before} == {1}
        assert (await it.answer())[0] == 2


@pytest.mark.parametrize("config", [BROKEN, WRONG], ids=["unreadable", "cannot be loaded"])
async def test_what_cannot_be_loaded_leaves_the_old_version_in_service(root: Path, config: str) -> None:
    async with managing(root) as it:
        add_model(root, config=config)

        with pytest.raises(LoadFailedError, match=r"load failed for model 'm': .*(max_batch_sise|service_row_us)"):
            await it.manager.load("m")

        assert await it.answer() == (1, 7)
        assert (await it.states(), it.service.is_ready()) == ([("m", 1, "READY")], True)
        assert (await it.reason(), "m" in it.service.problem("m")) == ("", True)


async def test_a_broken_new_version_does_not_drop_the_old_one(root: Path) -> None:
    async with managing(root) as it:
        add_model(root, "m", 2, config=WRONG)
        with pytest.raises(LoadFailedError):
            await it.manager.load("m")

        assert await it.answer() == (1, 7)
        assert await it.states() == [("m", 1, "READY"), ("m", 2, "UNAVAILABLE")]


async def test_a_load_without_a_change_does_nothing(root: Path) -> None:
    async with managing(root) as it:
        await it.answer()
        await it.manager.load("m")

        (statistics,) = it.service.statistics()
        assert statistics.inference_count == 1


async def test_a_configuration_of_the_request_holds_until_the_next_load(root: Path) -> None:
    async with managing(root) as it:
        await it.manager.load(
            "m",
            '{"backend": "fake", "max_batch_size": 2, "input": [{"name": "x", "data_type": '
            '"TYPE_FP32", "dims": [1]}], "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [1]}]}',
        )
        overridden = it.service.model("m").max_batch_rows
        await it.manager.load("m")

        assert (overridden, it.service.model("m").max_batch_rows) == (2, 4)


@pytest.mark.parametrize("override", ["{", '{"max_batch_sise": 4}', '{"input": 3}', "[]", "[" * 100_000])
async def test_a_configuration_that_makes_no_sense_is_refused(root: Path, override: str) -> None:
    async with managing(root) as it:
        with pytest.raises(LoadFailedError, match="configuration of the load request"):
            await it.manager.load("m", override)

        assert await it.answer() == (1, 7)


async def test_a_model_that_is_nowhere_is_said_to_be_so(root: Path) -> None:
    async with managing(root) as it:
        with pytest.raises(UnknownModelError, match="failed to load 'nobody', failed to poll from model repository"):
            await it.manager.load("nobody")
        await it.manager.unload("nobody")

        assert it.service.model_names() == ["m"]


@pytest.mark.parametrize("mode", ["none", "poll"])
async def test_the_verbs_belong_to_explicit_mode(root: Path, mode: str) -> None:
    async with managing(root, mode) as it:
        for verb in (it.manager.load("m"), it.manager.unload("m"), it.manager.scale("m", None, 0)):
            with pytest.raises(ControlNotAllowedError, match="explicit"):
                await verb

        assert await it.answer() == (1, 7)


async def test_a_broken_model_is_told_and_the_others_are_served(root: Path) -> None:
    add_model(root, "broken", config=BROKEN)
    add_model(root, "wrong", config=WRONG)
    async with managing(root) as it:
        assert len(it.problems) == 2
        assert ("max_batch_sise" in it.service.problem("broken"), it.service.problem("m")) == (True, "")
        assert await it.answer() == (1, 7)
        assert not it.service.is_ready()


async def test_good_versions_are_served_beside_a_broken_one(root: Path) -> None:
    config = CONFIG.replace("fake", "onnxruntime") + ALL
    add_model(root, "mixed", 1, 2, config=config)
    async with managing(root) as it:
        index = [entry for entry in await it.manager.index() if entry.model == "mixed"]

        assert [entry.version for entry in index] == [1, 2]
        assert all("model.onnx" in entry.reason for entry in index)


async def test_names_at_the_start_that_do_not_exist_are_a_problem(root: Path) -> None:
    async with managing(root, load=("m", "nobody")) as it:
        assert it.problems == ["--load-model=nobody: no such model in the repositories, found: m"]
        assert await it.answer() == (1, 7)


async def test_a_label_moves_when_its_version_is_ready(root: Path) -> None:
    labels = "[version_labels]\nstable = %d\n"
    add_model(root, side=labels % 1)
    async with managing(root) as it:
        add_model(root, "m", 2, config=WRONG, side=labels % 2)
        with pytest.raises(LoadFailedError):
            await it.manager.load("m")
        before = it.service.version_number("m", "stable")
        add_model(root, "m", 2, side=labels % 2)
        await it.manager.load("m")

        assert (before, it.service.version_number("m", "stable")) == (1, 2)


async def test_a_newer_version_that_fails_leaves_the_server_ready(root: Path) -> None:
    async with managing(root) as it:
        add_model(root, "m", 2, config=WRONG)
        with pytest.raises(LoadFailedError):
            await it.manager.load("m")

        assert it.service.is_ready()
        assert "service_row_us" in it.service.problem("m")


async def test_a_problem_that_was_mended_is_told_no_more(root: Path) -> None:
    async with managing(root) as it:
        add_model(root, config=WRONG)
        with pytest.raises(LoadFailedError):
            await it.manager.load("m")
        add_model(root)
        await it.manager.load("m")

        assert (it.service.problem("m"), await it.reason()) == ("", "")


async def test_an_ensemble_that_is_changed_for_the_worse_keeps_working(root: Path) -> None:
    add_ensemble(root, "e")
    async with managing(root) as it:
        before = it.answering("e")
        add_ensemble(root, "e", tensors=("nowhere", "y"))
        with pytest.raises(LoadFailedError, match="nowhere"):
            await it.manager.load("e")

        assert it.answering("e") is before
        assert it.service.is_ready()


async def test_a_circle_of_ensembles_is_named(root: Path) -> None:
    add_ensemble(root, "a", "b", ("in", "out"))
    add_ensemble(root, "b", "a", ("in", "out"))
    async with managing(root, load=()) as it:
        with pytest.raises(LoadFailedError, match="a -> b -> a"):
            await it.manager.load("a")


CLASSIFIER = """
backend: "fake"
max_batch_size: 4
input [ { name: "x" data_type: TYPE_FP32 dims: [ 3, 2, 2 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 3, 2, 2 ] } ]
"""


@pytest.mark.parametrize("model", [None, "eye"])
async def test_images_for_a_classifier_that_has_no_instances_may_come_again_later(
    root: Path, model: str | None
) -> None:
    add_model(root, "eye", config=CLASSIFIER, side="[preprocessing]\nresize = 2\ncrop = 2\n")
    async with managing(root) as it:
        before = await it.service.classify(ClassifyRequest(model=model, images=(b"3",)))
        await it.manager.scale("eye", None, 0)

        with pytest.raises(NotReadyYetError, match="model 'eye' version 1: scaled to 0 instances"):
            await it.service.classify(ClassifyRequest(model=model, images=(b"3",)))
        assert before.model == "eye"


async def test_an_ensemble_says_why_its_model_is_not_there(root: Path) -> None:
    add_model(root, config=WRONG)
    add_ensemble(root, "e")
    async with managing(root, load=()) as it:
        with pytest.raises(LoadFailedError, match="service_row_us"):
            await it.manager.load("e")

        assert it.service.is_ready()


async def test_the_label_of_a_version_may_be_any_word_or_is_refused(root: Path) -> None:
    for key in ('"1"', "7", '"my label"', '""', '"["', '".a"'):
        add_model(root, "bad", side=f"[version_labels]\n{key} = 1\n")
        async with managing(root) as it:
            assert "version_labels" in it.service.problem("bad")


HANGS = """
import threading


class Model:
    def __init__(self):
        threading.Event().wait()

    def execute(self, inputs):
        return {"y": inputs["x"]}
"""


def add_code(root: Path, code: str) -> None:
    directory = add_model(root, "code", config=CONFIG.replace('"fake"', '"python"'))
    write(directory / "1" / "model.py", code)


@pytest.mark.slow
async def test_a_load_that_hangs_is_given_up_when_its_model_is_mended_or_unloaded(root: Path) -> None:
    add_code(root, HANGS)
    async with managing(root, load=("m",)) as it:
        hanging = asyncio.create_task(it.manager.load("code"))
        await it.until_state("code", "LOADING")
        add_code(root, HANGS.replace("threading.Event().wait()", "pass"))
        await it.manager.load("code")
        mended = await it.answer("code")
        add_code(root, HANGS)
        again = asyncio.create_task(it.manager.load("code"))
        await it.until_task(again)
        await it.manager.unload("code")

        for task in (hanging, again):
            with pytest.raises(LoadFailedError, match="given up"):
                await task
        assert mended == (1, 7)
        assert await it.states() == [("code", 1, "UNAVAILABLE"), ("m", 1, "READY")]


async def test_an_unload_waits_for_what_an_older_version_has_taken(root: Path) -> None:
    add_model(root, config=SLOW)
    async with managing(root) as it:
        running = asyncio.create_task(it.answer())
        await asyncio.sleep(0)
        add_model(root)
        await it.manager.load("m")
        await it.manager.unload("m")

        assert running.done()
        assert await running == (1, 7)


async def test_a_shoal_toml_that_cannot_be_read_leaves_labels_and_readiness_as_they_are(root: Path) -> None:
    side = "required = true\n[version_labels]\nstable = 1\n"
    add_model(root, side=side)
    async with managing(root) as it:
        add_model(root, side=side + "oops\n")
        with pytest.raises(LoadFailedError):
            await it.manager.load("m")
        number = it.service.version_number("m", "stable")
        await it.manager.unload("m")

        assert (number, it.service.is_ready()) == (1, False)


async def test_an_ensemble_of_ensembles_comes_back_when_its_last_part_does(root: Path) -> None:
    add_ensemble(root, "inner")
    add_ensemble(root, "outer", "inner", ("in", "out"))
    async with managing(root) as it:
        await it.manager.unload("m")
        without = [state for name, _, state in await it.states() if name != "m"]
        await it.manager.load("outer")

        assert without == ["UNAVAILABLE", "UNAVAILABLE"]
        assert [state for _, _, state in await it.states()] == ["READY"] * 3


@pytest.mark.slow
async def test_a_load_that_waits_for_a_part_is_given_up_by_an_unload(root: Path) -> None:
    add_code(root, HANGS)
    add_ensemble(root, "e", "code")
    async with managing(root, load=()) as it:
        loading = asyncio.create_task(it.manager.load("e"))
        await it.until_state("code", "LOADING")
        await it.manager.unload("e")
        await it.manager.unload("code")

        with pytest.raises(LoadFailedError, match="given up"):
            await loading
        assert [entry for entry in await it.states() if entry[2] == "READY"] == []


@pytest.mark.slow
async def test_scaling_that_hangs_is_given_up_by_an_unload(root: Path) -> None:
    add_code(root, HANGS.replace("threading.Event().wait()", "pass"))
    async with managing(root) as it:
        write(root / "code" / "1" / "model.py", HANGS)
        scaling = asyncio.create_task(it.manager.scale("code", None, 2))
        await it.until_task(scaling)
        await it.manager.unload("code")

        with pytest.raises(LoadFailedError, match="given up"):
            await scaling


async def test_labels_name_versions(root: Path) -> None:
    add_model(root, "m", 1, 3, config=CONFIG + ALL, side="[version_labels]\nstable = 1\ncanary = 3\n")
    async with managing(root) as it:
        numbers = [it.service.version_number("m", text) for text in ("stable", "canary", "3")]

        assert numbers == [1, 3, 3]
        with pytest.raises(VersionNotFoundError, match="'m' version beta"):
            it.service.version_number("m", "beta")
        with pytest.raises(ModelNotFoundError):
            it.service.version_number("nobody", "stable")


READINESS = {
    # shoal.toml: (ready with the model, ready when it was unloaded)
    "": (True, True),
    "required = true\n": (True, False),
    "required = false\n": (True, True),
}


@pytest.mark.parametrize("side", READINESS)
async def test_readiness_follows_the_models_that_are_required(root: Path, side: str) -> None:
    add_model(root, side=side)
    async with managing(root) as it:
        ready = it.service.is_ready()
        await it.manager.unload("m")

        assert (ready, it.service.is_ready()) == READINESS[side]
        assert it.service.is_live()


async def test_a_model_that_is_not_required_may_be_broken(root: Path) -> None:
    add_model(root, "extra", config=WRONG, side="required = false\n")
    async with managing(root) as it:
        assert it.service.is_ready()


async def test_loading_or_failing_to_load_one_more_model_changes_nothing(root: Path) -> None:
    async with managing(root) as it:
        add_model(root, "more", config=WRONG)
        loading = asyncio.create_task(it.manager.load("more"))
        while_loading = it.service.is_ready()
        with pytest.raises(LoadFailedError):
            await loading

        assert (while_loading, it.service.is_ready()) == (True, True)


async def refused(it: Managed) -> str:
    with pytest.raises(NoInstanceError) as caught:
        await it.answer()
    return str(caught.value)


async def test_scaling_to_zero_answers_everybody_first_and_scaling_up_serves_again(root: Path) -> None:
    add_model(root, config=SLOW.replace("max_batch_size: 4", "max_batch_size: 1"))
    async with managing(root) as it:
        running = [asyncio.create_task(it.answer(value=value)) for value in range(7)]
        await asyncio.sleep(0)
        scaling = asyncio.create_task(it.manager.scale("m", None, 0))
        await it.until_state("m", "UNLOADING")
        text = await refused(it)
        await scaling
        answered = [task.done() for task in running]
        await it.manager.scale("m", 1, 2)

        assert "was scaled to 0" in text
        assert answered == [True] * 7
        assert [(await task)[1] for task in running] == list(range(7))
        assert await it.answer() == (1, 7)
        assert it.service.statistics()[0].instances == 2


async def test_a_model_at_zero_is_known_and_no_reason_to_be_unready_and_a_load_wakes_it(root: Path) -> None:
    async with managing(root) as it:
        await it.manager.scale("m", 1, 0)
        asleep = await it.states(), await it.reason(), it.service.is_ready()
        await it.manager.load("m")

        assert asleep == ([("m", 1, "UNAVAILABLE")], "scaled to 0 instances", True)
        assert await it.answer() == (1, 7)


async def test_what_is_not_served_cannot_be_scaled(root: Path) -> None:
    async with managing(root) as it:
        await it.manager.unload("m")
        for number, expected in ((None, NoVersionError), (1, VersionNotReadyError), (2, VersionNotFoundError)):
            with pytest.raises(expected):
                await it.manager.scale("m", number, 2)

        assert await it.states() == [("m", 1, "UNAVAILABLE")]


@pytest.mark.parametrize("instances", [-1, 257])
async def test_a_silly_number_of_instances_is_refused(root: Path, instances: int) -> None:
    async with managing(root) as it:
        with pytest.raises(LoadFailedError, match="expected 0 to 256"):
            await it.manager.scale("m", None, instances)


async def test_two_loads_at_once_are_one_after_the_other(root: Path) -> None:
    async with managing(root, load=()) as it:
        async with asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(it.manager.load("m"))

        assert await it.answer() == (1, 7)


async def test_a_load_goes_on_when_its_caller_leaves(root: Path) -> None:
    async with managing(root, load=()) as it:
        leaving = asyncio.create_task(it.manager.load("m"))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait((leaving,))
        await it.until_ready("m")

        assert leaving.cancelled()
        assert await it.answer() == (1, 7)


ENSEMBLE = """
platform: "ensemble"
max_batch_size: 4
input [ { name: "in" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "out" data_type: TYPE_FP32 dims: [ 1 ] } ]
ensemble_scheduling { step [ { model_name: "%s" model_version: -1
  input_map { key: "%s" value: "in" } output_map { key: "%s" value: "out" } } ] }
"""


def add_ensemble(root: Path, name: str, model: str = "m", tensors: tuple[str, str] = ("x", "y")) -> None:
    add_model(root, name, config=ENSEMBLE % (model, *tensors))


async def test_an_ensemble_brings_its_models_and_takes_them_along_if_asked(root: Path) -> None:
    add_ensemble(root, "e")
    async with managing(root, load=()) as it:
        await it.manager.load("e")
        loaded = await it.states()
        await it.manager.unload("e", dependents=True)

        assert loaded == [("e", 1, "READY"), ("m", 1, "READY")]
        assert await it.states() == [("e", 1, "UNAVAILABLE"), ("m", 1, "UNAVAILABLE")]


async def test_a_model_that_somebody_asked_for_stays_when_its_ensemble_goes(root: Path) -> None:
    add_ensemble(root, "e")
    async with managing(root) as it:
        await it.manager.unload("e", dependents=True)

        assert await it.answer() == (1, 7)


async def test_ensembles_of_each_other_are_refused_and_can_be_unloaded(root: Path) -> None:
    add_ensemble(root, "a", "b", ("in", "out"))
    add_ensemble(root, "b", "a", ("in", "out"))
    async with managing(root, load=()) as it:
        with pytest.raises(LoadFailedError):
            await it.manager.load("a")
        await it.manager.unload("a", dependents=True)
        await it.manager.load("m")

        assert await it.answer() == (1, 7)


async def test_an_ensemble_follows_its_models_out_of_service_and_back(root: Path) -> None:
    add_ensemble(root, "e")
    async with managing(root) as it:
        await it.manager.unload("m")
        without = (await it.states())[0], it.service.problem("e")
        await it.manager.load("m")

        assert without[0] == ("e", 1, "UNAVAILABLE")
        assert "'m'" in without[1]
        assert (await it.states())[0] == ("e", 1, "READY")


async def test_a_model_that_changes_under_its_ensemble_takes_it_out_until_it_fits_again(root: Path) -> None:
    add_ensemble(root, "e")
    async with managing(root) as it:
        add_model(root, config=CONFIG.replace("dims: [ 1 ]", "dims: [ 2 ]"))
        await it.manager.load("m")
        unfit = (await it.states())[0]
        add_model(root)
        await it.manager.load("m")

        assert unfit == ("e", 1, "UNAVAILABLE")
        assert (await it.states())[0] == ("e", 1, "READY")


async def test_an_ensemble_whose_models_did_not_change_is_not_touched(root: Path) -> None:
    add_ensemble(root, "e")
    async with managing(root) as it:
        before = it.answering("e")
        await it.manager.load("m")
        add_model(root, "m", 1, side="[batching]\nmax_queue_requests = 7\n")
        await it.manager.load("e")

        assert it.answering("e") is before


async def test_a_member_that_was_mended_is_loaded_with_its_ensemble(root: Path) -> None:
    add_model(root, config=BROKEN)
    add_ensemble(root, "e")
    async with managing(root) as it:
        before = (await it.states())[0]
        add_model(root)
        await it.manager.load("e")

        assert before == ("e", 1, "UNAVAILABLE")
        assert (await it.states())[0] == ("e", 1, "READY")


async def test_a_place_that_fails_in_an_unknown_way_is_the_problem_of_its_model_alone(root: Path) -> None:
    write(add_model(root, "deep") / "config.pbtxt", "optimization { " * 3000)
    async with managing(root) as it:
        assert "blocks within blocks" in it.service.problem("deep")
        assert await it.answer() == (1, 7)


async def test_who_asks_while_somebody_looks_gets_what_is_there_after_asking(root: Path) -> None:
    async with managing(root, load=()) as it:
        looking = [asyncio.create_task(it.manager.index()) for _ in range(4)]
        await asyncio.sleep(0)
        add_model(root, "late")
        found = await asyncio.gather(*looking, it.manager.index())

        assert [entry.model for entry in found[-1]] == ["late", "m"]
