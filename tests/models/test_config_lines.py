"""Lines of fields, whatever their names look like."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.config_lines import ConfigLines

LINES = ConfigLines(source="m/shoal.toml", line_by_field={"a": 1, "a.b": 2, "a.b[0]": 3})


@pytest.mark.parametrize(
    ("path", "line"),
    [("a.b[0].c", 3), ("a.b[1]", 2), ("a.c.d", 1), ("b", None), ("", None), ("a.[key]", 1), ("a.", 1)],
)
def test_a_field_has_its_own_line_or_that_of_the_block_around_it(path: str, line: int | None) -> None:
    assert LINES.line_of(path) == line


@given(st.text(alphabet="ab.[]01 \"'", max_size=12))
def test_a_line_is_looked_for_in_no_more_steps_than_the_path_has_characters(path: str) -> None:
    assert LINES.line_of(path) in {None, 1, 2, 3}
