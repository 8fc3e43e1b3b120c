"""Every Python snippet of README and docs/ is run as it stands there, after what its page says comes before it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from docs._pages import Block, blocks, every
from docs.conftest import Shell

NAMED = re.compile(r"# (\w+\.py)\n")  # a snippet that is a file of the reader's
ALONE = re.compile(r"__main__|volary\.init|init_process_group|groups\.group import join")  # one of several processes


def _parameter(block: Block) -> object:
    # a training and a store: many processes, and tests/test_api.py and tests/store/ have the like of them;
    # of those that are one of several processes, README's is run always
    takes_long = re.search(r"\.train\(\)|store\.serve", block.text)
    alone = block.page.name != "README.md" and (ALONE.search(_whole(block)) or "launch(" in block.text)
    slow = [pytest.mark.slow] if takes_long or alone else []
    return pytest.param(block, id=str(block), marks=slow)


def _whole(block: Block) -> str:
    return f"{block.marks.get('before', '')}\n{block.text}"


@pytest.mark.parametrize("block", [_parameter(block) for block in every("python")])
def test_a_snippet_runs(block: Block, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for other in blocks(block.page):
        if other.language == "python" and (named := NAMED.match(other.text)):
            (tmp_path / named[1]).write_text(other.text)
    text = _whole(block)
    (tmp_path / "snippet.py").write_text(text)
    if ALONE.search(text):
        said = shell("python snippet.py")
        assert said.status == 0, said.out + said.err
    else:
        monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
        runpy.run_path("snippet.py")
