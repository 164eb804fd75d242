"""What the pages name is there, and what they show as configuration is valid."""

import importlib
import json
import re
import tomllib
from operator import attrgetter
from pathlib import Path

import pytest

from models import pbtxt, side_file
from models.config import check_for_all_versions
from tests.docs.pages import PAGES, ROOT, Block, anchors_of, blocks_of, links_of, name_of, paths_in, symbols_in

BLOCKS = [block for page in PAGES for block in blocks_of(page)]
LANGUAGES = {"sh", "text", "json", "toml", "pbtxt", ""}
DECISIONS = sorted((ROOT / "docs/adr").glob("*.md"))

each_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


def blocks(language: str) -> list[object]:
    return [pytest.param(block, id=block.place) for block in BLOCKS if block.language == language]


@each_page
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    missing = [path for path in paths_in(page) if not (ROOT / path).exists()]

    assert missing == []


@each_page
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for link in links_of(page):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            broken.append(link)

    assert broken == []


@each_page
def test_every_symbol_that_a_page_names_is_in_its_file(page: Path) -> None:
    for file, symbol in symbols_in(page):
        module = importlib.import_module(file.removesuffix(".py").replace("/", "."))

        assert attrgetter(symbol)(module) is not None


def test_the_life_of_a_request_names_files_and_symbols() -> None:
    files = {file for file, _ in symbols_in(ROOT / "docs/concepts.md")}

    assert {file.partition("/")[0] for file in files} == {"gateway", "batching", "backends", "models"}


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_every_block_says_what_it_is(block: Block) -> None:
    assert block.language in LANGUAGES


@pytest.mark.parametrize("block", blocks("json"))
def test_json_on_a_page_is_json(block: Block) -> None:
    assert json.loads(block.text)


@pytest.mark.parametrize("block", blocks("toml"))
def test_toml_on_a_page_is_a_valid_side_file(block: Block) -> None:
    parsed = side_file.parse_side_file(block.text, block.place)

    assert parsed.tables != side_file.SideTables()


@pytest.mark.parametrize("block", blocks("pbtxt"))
def test_pbtxt_on_a_page_is_a_valid_configuration(block: Block) -> None:
    text = pbtxt.parse(block.text, block.place)

    check_for_all_versions(text, text.message.name)
    assert text.message.max_batch_size > 0


@pytest.mark.parametrize("page", DECISIONS, ids=name_of)
def test_a_decision_record_has_its_five_parts(page: Path) -> None:
    headings = re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE)

    assert headings == ["Context", "Decision", "Rejected", "Consequence", "How we would notice that it was wrong"]


def test_decision_records_are_numbered_without_gaps() -> None:
    assert [int(page.name[:4]) for page in DECISIONS] == list(range(1, len(DECISIONS) + 1))


def test_the_newest_release_in_the_change_log_is_the_packages_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    first, *releases = re.findall(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert first == "Unreleased"
    assert releases[:1] in ([], [version])
