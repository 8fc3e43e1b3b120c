"""Checkpoints in a folder elsewhere: written there, found from there, and gone with their run."""

from __future__ import annotations

from pathlib import Path

import pytest

from volary.cli._main import run as command
from volary.driver.ending import Unwatched
from volary.driver.resume import resume
from volary.driver.start import start
from volary.errors import SettingError
from volary.run.checkpoints import Checkpoints
from volary.session import Checkpoint, Session

ELSEWHERE = Path("large/disk")


def session(**more: object) -> Session:
    values = {
        "network": "lenet",
        "data": {"source": "digits", "batch_size": 16},
        "train": {"steps": 4},
        "checkpoint": {"every": "2 steps", "path": ELSEWHERE.absolute()},
        "run": {"name": "it"},
    }
    return Session(**values | more)


@pytest.mark.slow  # two lives
def test_checkpoints_are_written_read_counted_and_removed_where_the_session_says():
    directory = start(session(), Unwatched()).directory
    there = ELSEWHERE / "it"
    assert directory.checkpoints.resolve() == there.absolute()
    assert Checkpoints(there).steps() == [2, 4]
    ended = resume(directory, Unwatched(), ["train.steps=6"])
    assert (ended.state, ended.step) == ("finished", 6)
    assert Checkpoints(there).verify(6).step == 6
    assert command(["export", "it"]) == 0
    assert command(["evaluate", "it"]) == 0
    assert command(["rm", "--yes", "it"]) == 0
    assert list(ELSEWHERE.iterdir()) == list(Path("runs").iterdir()) == []


def test_store_is_refused_with_what_to_do_instead():
    with pytest.raises(SettingError, match="path is s3://bucket/x; accepted: a folder; for a store, one at which it"):
        Checkpoint(path="s3://bucket/x")
