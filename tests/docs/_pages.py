"""README and docs/ as the tests read them: fenced blocks, each with the marks in the HTML comments right above it.

A fence says what it holds: `sh` and `console` commands (in `console` the lines that begin with `$ `), `python`, `yaml`,
and `text`, or nothing, for all that nobody types. The marks:

    <!-- not run: needs root -->      nobody tries the block, for one of the reasons in NOT_RUN
    <!-- before: ... -->              what comes before: shell before commands, Python before Python
    <!-- fragment -->                 YAML: a part of a session
    <!-- topology -->                 YAML: no session, but links as `exchange.topology` describes them
    <!-- queue settings -->           YAML: no session, but what a user wants of the queue
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PAGES = [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").glob("*.md"))]
LANGUAGES = {"sh", "console", "python", "yaml", "text"}
MARKS = {"not run", "before", "fragment", "topology", "queue settings"}
FOREIGN = "code of another library"  # as people have it who come from there
NOT_RUN = {FOREIGN, "has a test of its own", "needs root", "needs another machine", "needs a GPU", "needs a network"}
_COMMENT = re.compile(r"<!--\s*([a-z ]+?)\s*(?::\s*(.*?))?\s*-->", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block. line: of its fence, from 1. marks: what the comments above it say, by their first words."""

    page: Path
    line: int
    language: str
    text: str
    marks: dict[str, str]

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"

    def commands(self) -> list[str]:
        """Its commands, each on one line."""
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.language == "console":
            return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        return [line for line in lines if line.strip()]


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page."""
    found: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    opened: int | None = None
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if opened is None:
            opened = number
            continue
        assert line == "```", f"{page.name}:{number + 1}: a fence opens inside of another"
        text = "\n".join(lines[opened + 1 : number]) + "\n"
        found.append(Block(page, opened + 1, lines[opened][3:] or "text", text, _marks("\n".join(lines[:opened]))))
        opened = None
    assert opened is None, f"{page.name}:{opened}: a fence is never closed"
    return found


def _marks(above: str) -> dict[str, str]:
    """The comments with which the text above a fence ends."""
    marks: dict[str, str] = {}
    while above.rstrip().endswith("-->"):
        start = above.rindex("<!--")
        said = _COMMENT.fullmatch(above[start:].strip())
        marks |= {said[1]: said[2] or ""} if said else {above[start:].strip(): ""}
        above = above[:start]
    return marks


def every(*languages: str) -> list[Block]:
    """All blocks of the languages, in all pages, that somebody can try."""
    return [
        block
        for page in PAGES
        for block in blocks(page)
        if block.language in languages and "not run" not in block.marks
    ]
