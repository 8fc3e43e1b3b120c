"""docs/security.md promises nothing that no test shows: the tests that it names are there."""

from __future__ import annotations

import re
from pathlib import Path

from volary.comm.channels import acceptor
from volary.comm.control.frames import FRAME_BYTES, STRANGER_FRAME_BYTES
from volary.comm.control.server import Limits

ROOT = Path(__file__).parents[2]


def test_every_promise_names_tests_that_are_there() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    promises = page.partition("## The promise")[2].partition("\n## ")[0]
    assert promises.count("\n- **") == promises.count("<!--") > 8
    for file, _, test in re.findall(r"(tests/[\w/]+\.py)(::(\w+))?", page):
        assert f"def {test}" in (ROOT / file).read_text(), f"{file}::{test}"


def test_the_limits_of_the_page_are_those_of_every_server() -> None:
    page = " ".join((ROOT / "docs" / "security.md").read_text().split())
    assert f"at most {FRAME_BYTES >> 20} MiB each, {STRANGER_FRAME_BYTES >> 10} KiB from whoever has not" in page
    for limits in (Limits(), acceptor._LIMITS):
        sentence = f"within {limits.handshake_s:.0f} s is closed; at most {limits.strangers} such connections are kept"
        assert sentence in page


def test_the_messages_of_the_page_are_what_is_said() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    said = "".join(file.read_text() for file in (ROOT / "src" / "volary" / "comm").rglob("*.py"))
    said = re.sub(r'"\n\s*f?"', "", said)  # a text that goes on in the next line
    messages = re.findall(
        r"^\| `([^`]+)`", page.partition("| message | meaning |")[2].partition("\n\n")[0], re.MULTILINE
    )
    assert len(messages) >= 8
    parts = [part.strip(": ") for message in messages for part in re.split("…|<address>", message)]
    assert [part for part in parts if part not in said] == []
