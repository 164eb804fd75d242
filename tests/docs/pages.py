"""The documentation as data: fenced blocks, links, named files, tables."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
)
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_SYMBOL = re.compile(r"`([a-z0-9_/]+\.py)`\s+\(`([\w.]+)`\)")
_REPOSITORY_PATH = re.compile(r"(?:backends|batching|deploy|docs|gateway|loadtest|models|tests)/[\w./-]*")
_TOP_LEVEL_FILES = frozenset({"Dockerfile", "Makefile", "pyproject.toml", "LICENSE"})
_ROW = re.compile(r"^\| (.*) \|$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block; `language` may be empty."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path, *languages: str) -> list[Block]:
    """The page's blocks in order; of these languages only, if any are named."""
    text = page.read_text()
    blocks = []
    for match in _FENCE.finditer(text):
        indent, language, body = match.groups()
        lines = [line.removeprefix(indent) for line in body.splitlines()]
        blocks.append(Block(page, text.count("\n", 0, match.start()) + 1, language, "\n".join(lines) + "\n"))
    return [block for block in blocks if not languages or block.language in languages]


def prose_of(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


def links_of(page: Path) -> list[str]:
    """Targets of the links that stay in the repository."""
    return [target for target in _LINK.findall(prose_of(page)) if "://" not in target]


def anchors_of(page: Path) -> set[str]:
    """The headings' anchors, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def paths_in(page: Path) -> list[str]:
    """Files and directories of the repository that the prose names as code."""
    words = _CODE.findall(prose_of(page))
    return [word for word in words if _REPOSITORY_PATH.fullmatch(word) or word in _TOP_LEVEL_FILES]


def symbols_in(page: Path) -> list[tuple[str, str]]:
    """What the prose names as "`file.py` (`symbol`)"."""
    return _SYMBOL.findall(prose_of(page))


def table_of(page: Path, heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, without its head; cells without the marks of code."""
    below = page.read_text().partition(f"# {heading}\n")[2]
    section = re.split(r"^#", below, maxsplit=1, flags=re.MULTILINE)[0]
    rows = [[cell.strip() for cell in row.split(" | ")] for row in _ROW.findall(section)]
    return [[cell.replace("`", "") for cell in row] for row in rows[2:]]
