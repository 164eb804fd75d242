"""Finding the version, classifying, readiness."""

from dataclasses import replace
from typing import Any

import pytest

from batching.core.errors import QueueFullError, ShuttingDownError
from gateway.catalogue import Catalogue
from gateway.lifecycle import Move
from gateway.service import InferenceService
from models.errors import (
    BrokenImageError,
    InvalidRequestError,
    ModelNotFoundError,
    NotClassifierError,
    NoVersionError,
    VersionNotFoundError,
    VersionNotReadyError,
)
from models.spec import BatchingSpec
from tests.gateway.serving import echo, images, mirror, rows, serving


def catalogue_of(**failed: list[int]) -> Catalogue:
    """Models that should be served, and of which these versions have failed."""
    catalogue = Catalogue()
    for name, versions in failed.items():
        record = catalogue.record(name)
        record.is_wanted = True
        for number in versions:
            record.version(number).is_wanted = True
            record.version(number).move(Move.LOAD_FAILED, "it is broken")
    return catalogue


async def test_the_highest_version_answers_unless_one_is_named() -> None:
    async with serving(echo(version=1), echo(version=3)) as service:
        default, named = await service.infer(rows(1)), await service.infer(rows(1, version=1))

        assert (default.version, named.version) == (3, 1)
        assert service.ready_versions("echo") == [1, 3]


async def test_only_the_wanted_outputs_are_answered_under_the_callers_id() -> None:
    async with serving(echo()) as service:
        response = await service.infer(rows(1, outputs=("y",), request_id="7"))

        assert (list(response.outputs), response.request_id) == (["y"], "7")


UNKNOWN: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "model": ({"model": "nobody"}, ModelNotFoundError),
    "version": ({"version": 9}, VersionNotFoundError),
    "failed version": ({"version": 2}, VersionNotReadyError),
    "model without a version": ({"model": "broken"}, NoVersionError),
}


@pytest.mark.parametrize("what", UNKNOWN)
async def test_what_is_not_there_has_an_error_of_its_own(what: str) -> None:
    request, expected = UNKNOWN[what]
    service = InferenceService(catalogue_of(echo=[2], broken=[]))

    with pytest.raises(expected):
        await service.infer(rows(1, **request))


async def test_a_version_that_failed_is_known_and_not_ready() -> None:
    service = InferenceService(catalogue_of(a=[2]))

    assert (service.is_model_ready("a", 2), service.is_model_ready("a")) == (False, False)
    with pytest.raises(VersionNotFoundError):
        service.is_model_ready("a", 3)


@pytest.mark.parametrize("failed", [[1], []], ids=["one version", "the whole model"])
@pytest.mark.parametrize("is_strict", [True, False])
async def test_a_failed_model_keeps_a_strict_server_from_being_ready(is_strict: bool, failed: list[int]) -> None:
    service = InferenceService(catalogue_of(a=failed), strict_readiness=is_strict)

    assert service.is_ready() is not is_strict
    assert service.is_live()


async def test_a_server_that_is_about_to_stop_is_not_ready_and_still_answers() -> None:
    async with serving(echo()) as service:
        ready_before = service.is_ready()
        service.stop_being_ready()

        assert (ready_before, service.is_ready(), service.is_live()) == (True, False, True)
        assert (await service.infer(rows(1))).version == 1


async def test_one_image_is_classified_with_its_times() -> None:
    async with serving(mirror()) as service:
        response = await service.classify(images(b"1", top_k=1, request_id="7"))

        ((prediction,),) = response.results
        assert (prediction.index, prediction.label, prediction.probability) == (1, "b", 1.0)
        assert (response.request_id, response.model, response.version) == ("7", "mirror", 1)
        assert response.timing.total_ns >= response.timing.decode_ns > 0


async def test_a_bad_image_of_several_is_an_error_at_its_place() -> None:
    unreadable = BrokenImageError("not valid base64")
    async with serving(mirror()) as service:
        response = await service.classify(images(b"2", b"x", unreadable, b"3", top_k=1))

        first, second, third, fourth = response.results
        assert (first[0].label, fourth[0].label) == ("c", "3")
        assert isinstance(second, BrokenImageError)
        assert third is unreadable


async def test_a_full_queue_is_the_answer_of_the_images_that_found_no_place() -> None:
    narrow = replace(mirror(), batching=BatchingSpec(max_queue_requests=1))
    async with serving(narrow) as service:
        response = await service.classify(images(b"1", b"2", b"3", top_k=1))

        assert [isinstance(result, QueueFullError) for result in response.results] == [False, True, True]


NOT_CLASSIFIERS: dict[str, tuple[list[Any], str | None, type[Exception], str]] = {
    "none here": ([echo()], None, NotClassifierError, "no model here classifies images"),
    "the named one": ([echo(), mirror()], "echo", NotClassifierError, "model 'echo' cannot classify"),
    "several": ([mirror("m1"), mirror("m2")], None, InvalidRequestError, "name one in the path: m1, m2"),
    "unknown": ([mirror()], "nobody", ModelNotFoundError, "'nobody' is not found"),
}


@pytest.mark.parametrize("case", NOT_CLASSIFIERS)
async def test_without_one_classifier_the_error_says_why(case: str) -> None:
    specs, model, expected, text = NOT_CLASSIFIERS[case]
    async with serving(*specs) as service:
        with pytest.raises(expected, match=text):
            await service.classify(images(b"1", model=model))


async def test_after_the_end_nothing_is_admitted() -> None:
    async with serving(echo()) as service:
        pass

    with pytest.raises(ShuttingDownError):
        await service.infer(rows(1))
