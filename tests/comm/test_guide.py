"""docs/security.md promises nothing that no test shows: the tests that it names are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_promise_names_tests_that_are_there() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    promises = page.partition("## The promise")[2].partition("\n## ")[0]
    assert promises.count("\n- **") == promises.count("<!--") > 8
    for file, _, test in re.findall(r"(tests/[\w/]+\.py)(::(\w+))?", page):
        assert f"def {test}" in (ROOT / file).read_text(), f"{file}::{test}"
