"""A new run of three workers, each with its log; who needs another has its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from volary.run.directory import RunDirectory


@pytest.fixture
def directory() -> RunDirectory:
    made = RunDirectory.create(Path("runs"), "it", "x", "network: lenet\n")
    for rank in range(3):
        made.log(rank).write_text(f"the log of {rank}\n")
    return made
