"""What is left of a shoal.toml with mistakes."""

import pytest

from models.side_file_parts import good_parts

SOURCE = "m/shoal.toml"
# Keys that look like steps of a path, or like nothing at all.
BAD_KEYS = ["7", '"my label"', '""', '"["', '".a"', '"a]."', '"[0]"', '"\\u0000"']


@pytest.mark.parametrize("key", BAD_KEYS)
@pytest.mark.parametrize("table", ["", "[version_labels]", "[batching]", "[preprocessing]", "[golden]"])
def test_a_bad_key_is_left_out_and_the_rest_stays(table: str, key: str) -> None:
    parts = good_parts(f'labels = "labels.txt"\n{table}\n{key} = 1', SOURCE)

    assert parts.side.tables.labels == "labels.txt"
    assert parts.side.tables.version_labels == {}


def test_a_wrong_key_takes_no_other_key_of_the_batching_with_it() -> None:
    parts = good_parts('[batching]\npolicy = "torchserve"\nmax_queue_rows = 0\noversize = "no"', SOURCE)

    assert (parts.side.tables.batching.policy, parts.left_out) == ("torchserve", ())


def test_a_wrong_policy_takes_its_parameters_with_it() -> None:
    parts = good_parts("[batching]\npolicy = 3\nparameters = { batch_size = 4 }", SOURCE)

    assert parts.side.tables.batching.parameters == {}
    assert parts.left_out == ("batching.parameters",)


def test_a_wrong_crop_takes_the_whole_table_and_what_is_compared_with_it() -> None:
    parts = good_parts("[preprocessing]\ncrop = 0\n[golden]\ntolerance_levels = 1.0", SOURCE)

    assert (parts.side.tables.preprocessing, parts.side.tables.golden) == (None, None)
    assert parts.left_out == ("preprocessing", "golden")


@pytest.mark.parametrize("text", ["[", "a = " + "9" * 5000])
def test_nothing_is_left_of_what_does_not_parse(text: str) -> None:
    assert good_parts(text, SOURCE).left_out == ("all of shoal.toml",)


def test_nothing_is_left_out_of_a_good_file() -> None:
    assert good_parts("[batching]\nmax_queue_rows = 8", SOURCE).left_out == ()
