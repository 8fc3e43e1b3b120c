"""Files without which a run cannot be resumed come back into its folder; a warning says so once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from volary.driver.watching.run_folder import RunFolder
from volary.errors import RunError
from volary.run.database.journal import Journal
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.run.lock import RunLock


@pytest.fixture
def directory() -> RunDirectory:
    return RunDirectory.create(Path("runs"), "it", "it", "network: lenet", checkpoints=Path("elsewhere"))


@pytest.fixture
def folder(directory: RunDirectory) -> Iterator[RunFolder]:
    with (
        directory.lock() as lock,
        closing(Journal(directory.database)) as journal,
        RunFolder(directory, lock, journal) as folder,
    ):
        yield folder


def warnings(directory: RunDirectory) -> list[str]:
    with RunReader(directory) as reader:
        return [event.data["text"] for event in reader.events(kind="warning")]


def test_nothing_is_said_of_a_folder_that_is_whole(directory, folder):
    folder.look()
    assert warnings(directory) == []


def test_what_is_removed_again_comes_back_again_and_is_told_once(directory, folder):
    key = directory.key()
    for _ in range(2):
        (directory.path / "key").unlink()
        folder.look()
        assert directory.key() == key
    assert [text.count("key") for text in warnings(directory)] == [1]


def test_a_folder_that_a_save_has_made_anew_before_anybody_looked_is_told(directory, folder):
    for _ in range(2):
        shutil.rmtree(directory.path / "logs")
        (directory.path / "logs").mkdir()
        folder.look()
    assert [text.count("logs/") for text in warnings(directory)] == [1]


def test_the_link_to_checkpoints_elsewhere_comes_back(directory, folder):
    there = directory.checkpoints.resolve()
    directory.checkpoints.unlink()
    folder.look()
    assert directory.checkpoints.is_symlink()
    assert directory.checkpoints.resolve() == there


def test_a_removed_database_is_whole_again_when_the_run_has_ended(directory):
    with directory.lock() as lock, closing(Journal(directory.database)) as journal:
        journal.event("warning", text="before")
        with RunFolder(directory, lock, journal) as folder:
            for path in directory.path.glob("run.sqlite*"):
                path.unlink()
            folder.look()
    assert [text.count("run.sqlite") for text in warnings(directory)] == [0, 1]


def test_a_folder_that_is_gone_does_not_come_back_with_a_part_of_what_was_in_it(directory, folder):
    shutil.rmtree(directory.path)
    folder.look()
    assert not directory.path.exists()


def test_a_driver_whose_lock_was_removed_and_taken_by_another_gives_way(directory, folder):
    (directory.path / "lock").unlink()
    folder.look()
    assert directory.is_live()
    (directory.path / "lock").unlink()
    with RunLock(directory.path / "lock"), pytest.raises(RunError, match="is being written by process"):
        folder.look()
