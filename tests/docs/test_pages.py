"""Every fenced block of README and docs/ says what it holds, so that nothing escapes the tests beside this one."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from docs._pages import CHECKOUT, FOREIGN, LANGUAGES, MARKS, NOT_RUN, PAGES, Block, blocks
from volary.cli.command.main import cli
from volary.cli.launch import parted
from volary.session import Session
from volary.session.script import Script
from volary.session.starter import starter

BLOCKS = [block for page in PAGES for block in blocks(page)]
TYPED = re.compile(r"(\$ |volary |torchrun |python |pip |make |sqlite3 |curl |from \w+ import|import \w+$)")
SPAN = re.compile(r"`volary ((?:--debug )?[a-z]+(?: [^`]+)?)`")
TEST = re.compile(r"((?:\w+/)*test_\w+\.py)?(?:::(test_\w+))?")
UNTRIED_AT_MOST = 12  # a lab needs root, installing a network, an engine its launcher (tests/engine runs those)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_says_what_it_holds_and_its_marks_are_known(block: Block) -> None:
    assert block.language in LANGUAGES
    assert set(block.marks) <= MARKS
    assert block.marks.get("not run", "needs root") in NOT_RUN


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "text"], ids=str)
def test_nothing_that_is_typed_hides_in_a_text(block: Block) -> None:
    assert not [line for line in block.text.splitlines() if TYPED.match(line)]


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "console"], ids=str)
def test_a_console_shows_commands(block: Block) -> None:
    assert block.commands()


def test_few_blocks_are_tried_by_nobody() -> None:
    untried = [str(block) for block in BLOCKS if block.marks.get("not run", FOREIGN) != FOREIGN]
    assert len(untried) <= UNTRIED_AT_MOST, untried


def spans() -> list[tuple[str, str]]:
    """Commands in running text, which nobody runs: page and what stands after `volary`."""
    found = {
        (page.name, words)
        for page in PAGES
        for words in SPAN.findall(re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE))
    }
    return sorted(found)


@pytest.mark.parametrize(("page", "words"), spans())
def test_a_command_in_running_text_is_one_that_there_is(page: str, words: str) -> None:
    """Its verb and its options are known, and its settings are accepted."""
    verb, *rest = shlex.split(words.removeprefix("--debug ").partition(" -- ")[0].replace("…", "..."))
    if verb == "VERB":
        return
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None, f"no verb {verb!r}"
    if verb == "launch" and rest:
        settings, program, _ = parted(rest)
        Script.of_program(program, [], settings)
        return
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    known |= {option for part in getattr(command, "commands", {}).values() for p in part.params for option in p.opts}
    assert {word.partition("=")[0] for word in rest if word.startswith("-")} <= known
    settings = [word for word in rest if re.match(r"[a-z_.]+=[^.]", word)]
    Path("session.yaml").write_text(starter())
    Session.read("session.yaml", settings)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_that_a_page_names_are_there(page: Path) -> None:
    """A file by its path below tests/, or by its name alone; a test without one is of the file named before it."""
    files: list[Path] = []
    for path, test in TEST.findall(page.read_text()):
        if path:
            below = path.removeprefix("tests/")
            files = list((CHECKOUT / "tests").glob(below if "/" in below else f"**/{below}"))
            assert files, path
        if test:
            assert any(f"def {test}(" in file.read_text() for file in files), f"{path}::{test}"


def test_every_fault_in_the_table_has_a_test() -> None:
    page = (CHECKOUT / "docs" / "faults.md").read_text()
    rows = [line.split("|")[1:-1] for line in page.partition("\n| fault |")[2].splitlines()[2:]]
    assert len(rows) >= 24
    assert [row[0].strip() for row in rows if not re.search(r"`\w+/(\w+/)*test_\w+\.py", row[4])] == []
