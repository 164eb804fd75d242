"""The differences that tests/peers excuses are those that docs/compatibility.md tells; this needs no other server."""

import pytest

from tests.docs.pages import ROOT, table_of
from tests.peers.known import GRPC_TABLE, HTTP_TABLE, KNOWN, NOT_COMPARED
from tests.peers.test_triton import ALL_CASES

PAGE = ROOT / "docs/compatibility.md"
ROWS = {row[0] for table in (HTTP_TABLE, GRPC_TABLE) for row in table_of(PAGE, table)}


def test_every_excused_case_exists_and_is_excused_once() -> None:
    excused = [case for known in KNOWN for case in known.cases]

    assert set(excused) <= ALL_CASES
    assert len(set(excused)) == len(excused)


@pytest.mark.parametrize("told", sorted({known.told for known in KNOWN}))
def test_every_excuse_is_told_on_the_page(told: str) -> None:
    text = " ".join(PAGE.read_text().split())

    assert told in ROWS or told in text


def test_every_row_of_the_page_is_shown_by_a_case_or_says_why_not() -> None:
    shown = {known.told for known in KNOWN} & ROWS

    assert shown | NOT_COMPARED.keys() == ROWS
    assert shown & NOT_COMPARED.keys() == set()
