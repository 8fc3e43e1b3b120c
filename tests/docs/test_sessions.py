"""Every YAML block of README and docs/ is a session that is accepted, or a part of one."""

from __future__ import annotations

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from docs._pages import CHECKOUT, Block, blocks, every
from volary.comm.topology.topology import described
from volary.jobs.settings import queue_settings, settings_file
from volary.session import Session, SessionError
from volary.session.starter import starter

BASE = "network: lenet\ndata: {source: digits}\n"
README = CHECKOUT / "README.md"
WHOLE = ("network", "data")


def read(text: str) -> Session:
    Path("session.yaml").write_text(text)
    return Session.read("session.yaml")


def is_whole(block: Block) -> bool:
    return not {"fragment", "topology", "queue settings"} & set(block.marks)


@pytest.mark.parametrize("block", [block for block in every("yaml") if is_whole(block)], ids=str)
def test_a_session_is_accepted_as_it_stands(block: Block) -> None:
    assert set(WHOLE) <= set(YAML(typ="safe").load(block.text)), "mark it as a fragment"
    read(block.text)


@pytest.mark.parametrize("block", [block for block in every("yaml") if "fragment" in block.marks], ids=str)
def test_a_part_of_a_session_is_accepted_in_one(block: Block) -> None:
    part = YAML(typ="safe").load(block.text)
    assert not set(WHOLE) <= set(part), "this is a whole session"
    base = "".join(line for line in BASE.splitlines(keepends=True) if line.partition(":")[0] not in part)
    read(base + block.text)


@pytest.mark.parametrize("block", [block for block in every("yaml") if "topology" in block.marks], ids=str)
def test_a_topology_is_accepted(block: Block) -> None:
    Path("cluster.yaml").write_text(block.text)
    assert described(Path("cluster.yaml"), ["h0", "h1", "h2", "h3"]) == ((0, 1), (2, 3))


@pytest.mark.parametrize("block", [block for block in every("yaml") if "queue settings" in block.marks], ids=str)
def test_settings_of_the_queue_are_accepted(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    settings_file().parent.mkdir()
    settings_file().write_text(block.text)
    queue_settings()


def test_readme_init_and_the_example_are_one_session() -> None:
    shown = next(block for block in every("yaml") if block.page.name == "README.md")
    sessions = [read(text) for text in (shown.text, starter(), (CHECKOUT / "examples" / "digits.yaml").read_text())]
    assert sessions[0] == sessions[1] == sessions[2]


def test_the_mistake_that_readme_shows_is_told_so() -> None:
    session, mistake = (
        next(block.text for block in blocks(README) if block.language == language and wanted in block.text)
        for language, wanted in (("yaml", "momentum"), ("text", "momentun"))
    )
    with pytest.raises(SessionError) as told:
        read(session.replace("momentum", "momentun"))
    assert str(told.value).startswith(mistake.removesuffix(", ...\n"))
