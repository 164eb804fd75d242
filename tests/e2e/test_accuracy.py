"""Labelled photographs in, correct labels out, on every way in."""

import base64
from typing import Any

import pytest

from tests.e2e.server import Server
from tests.e2e.wire import classified

pytestmark = pytest.mark.e2e

Photos = list[tuple[int, bytes]]
Answers = list[list[dict[str, Any]]]


@pytest.fixture(scope="module")
def one_by_one(lite0: Server, photos: Photos) -> Answers:
    return [classified(lite0.client.post("/classify", content=photo)) for _, photo in photos]


def assert_same(found: Answers, expected: Answers) -> None:
    """The same classes; the probabilities may differ in the last bits, because other rows share the batch."""
    assert [[guess["label"] for guess in row] for row in found] == [
        [guess["label"] for guess in row] for row in expected
    ]
    for row, expected_row in zip(found, expected, strict=True):
        assert [guess["probability"] for guess in row] == pytest.approx(
            [guess["probability"] for guess in expected_row], abs=1e-5
        )


def test_18_of_20_photographs_get_their_class_first_and_19_among_five(photos: Photos, one_by_one: Answers) -> None:
    guesses = [(label, [guess["class"] for guess in row]) for (label, _), row in zip(photos, one_by_one, strict=True)]

    assert len(guesses) == 20
    assert sum(label == found[0] for label, found in guesses) >= 18
    assert sum(label in found for label, found in guesses) >= 19


def test_all_in_one_form_get_the_same_answers(lite0: Server, photos: Photos, one_by_one: Answers) -> None:
    files = [("image", (f"{index}.jpg", photo, "image/jpeg")) for index, (_, photo) in enumerate(photos)]

    answer = lite0.client.post("/classify", files=files)

    assert_same(classified(answer), one_by_one)


@pytest.mark.parametrize("prefix", ["", "data:image/jpeg;base64,"], ids=["base64", "data URL"])
def test_all_in_one_json_list_get_the_same_answers(
    lite0: Server, photos: Photos, one_by_one: Answers, prefix: str
) -> None:
    images = [prefix + base64.b64encode(photo).decode() for _, photo in photos]

    answer = lite0.client.post("/classify", json={"images": images, "top_k": 5})

    assert_same(classified(answer), one_by_one)


def test_more_images_than_allowed_are_refused_with_the_limit(lite0: Server, photos: Photos) -> None:
    files = [("image", photos[0][1])] * 65

    answer = lite0.client.post("/classify", files=files)

    assert answer.status_code == 400
    assert "found 65 images in one request, expected at most 64" in answer.json()["error"]
