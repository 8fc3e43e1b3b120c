"""The table of what is tested with real launchers: it has every promise, and names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "engines.md"


def rows() -> list[list[str]]:
    section = PAGE.read_text(encoding="utf-8").partition("\n## What is tested, with real launchers\n")[2]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:2] == "| "]
    return cells[1:]


def named(row: list[str]) -> list[str]:
    return [test for cell in row[2:] for test in re.findall(r"`(test_\w+\.py::test_\w+)`", cell)]


def test_every_promise_has_a_test():
    found = rows()
    assert "".join(row[0] for row in found) == "abcdefghijklm"
    assert [row[0] for row in found if not named(row) and not row[2].startswith("as ")] == []


def test_tests_that_are_named_exist():
    for file, _, name in (test.partition("::") for row in rows() for test in named(row)):
        tree = ast.parse((HERE / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{file}::{name}"
