"""Checkpoints in a folder elsewhere: written there, found from there, and gone with their run."""

from __future__ import annotations

from pathlib import Path

import pytest

from volary.cli.command.main import run as command
from volary.driver.ending import NoWatcher
from volary.driver.resume import resume
from volary.driver.start import start
from volary.driver.tasks.task import create
from volary.errors import BadInput, SettingError
from volary.run.checkpoints import Checkpoints
from volary.session import Checkpoint, Session
from volary.session.reading.problems import SessionError
from volary.session.script import Script

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
    directory = start(session(), NoWatcher()).directory
    there = ELSEWHERE / "it"
    assert directory.checkpoints.resolve() == there.absolute()
    assert Checkpoints(there).steps() == [2, 4]
    ended = resume(directory, NoWatcher(), ["train.steps=6"])
    assert (ended.state, ended.step) == ("finished", 6)
    assert Checkpoints(there).verify(6).step == 6
    assert command(["export", "it"]) == 0
    assert command(["evaluate", "it"]) == 0
    assert command(["rm", "--yes", "it"]) == 0
    assert list(ELSEWHERE.iterdir()) == list(Path("runs").iterdir()) == []


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (
            "https://host/x",
            "path is https://host/x; accepted: a folder, or a URL that can .*; https is for reading",
        ),
        ("memory://x", "path is memory://x; accepted: .*; memory is each process's own"),
        ("s3://me:secret@bucket/x", "path is a URL with a password; accepted: .*; the store's own configuration has"),
    ],
)
def test_address_to_which_nothing_can_be_written_is_refused_in_a_sentence(path, words):
    with pytest.raises(SettingError, match=words):
        Checkpoint(path=path)


def test_a_loop_of_ones_own_has_its_checkpoints_where_it_says_and_nothing_that_it_would_not_heed():
    script = Script.of_program("mine.py", [], ["checkpoint.path=large/disk", "checkpoint.keep_last=5", "run.name=it"])
    directory = create(script)
    assert directory.checkpoints.resolve() == (ELSEWHERE / "it").absolute()
    assert Script.read(directory.session).checkpoint == script.checkpoint
    for setting, words in [
        ("checkpoint.keep_last=0", "checkpoint.keep_last: is 0; accepted: "),
        ("checkpoint.path=memory://x", "path: is memory://x; accepted: .*; memory is each process's own"),
        ("checkpoint.every=2 steps", "checkpoint.every: unknown"),
    ]:
        with pytest.raises(SessionError, match=words):
            Script.of_program("mine.py", [], [setting])


def test_file_address_is_a_folder():
    assert Checkpoint(path="file:///large/disk").path == Path("/large/disk")


def test_store_whose_library_is_missing_is_named_before_anything_starts():
    with pytest.raises(BadInput, match=r"checkpoint.path: gs://bucket/x: gcsfs is not installed"):
        start(session(checkpoint={"path": "gs://bucket/x"}), NoWatcher())
    assert not Path("runs").exists()
