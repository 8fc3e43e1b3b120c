"""The sessions that the docs show of parts, weights and batch norm over all workers train as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs._pages import CHECKOUT, blocks
from volary.driver.ending import NoWatcher
from volary.driver.start import start
from volary.session import Session

SHOWN = {
    "stratify": ("data.md", "split: {validation: 0.1"),
    "folds": ("data.md", "folds: 3"),
    "by class": ("data.md", "sampling: {by: class}"),
    "batch norm": ("training.md", "sync_batch_norm: true"),
}


@pytest.mark.slow  # four runs
@pytest.mark.parametrize("name", SHOWN)
def test_a_session_of_the_docs_trains(name):
    page, wanted = SHOWN[name]
    (text,) = [
        block.text for block in blocks(CHECKOUT / "docs" / page) if wanted in block.text and "network:" in block.text
    ]
    Path("session.yaml").write_text(text)
    assert start(Session.read("session.yaml"), NoWatcher()).state == "finished"
