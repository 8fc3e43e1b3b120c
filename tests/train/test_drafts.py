"""Checkpoints of ranks that do not see the run's directory: the driver writes what they send."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from _home import Home, receiving
from volary.comm.files.client import FileClient
from volary.run.checkpoints import Checkpoints
from volary.train.state.drafts import RemoteDrafts


@pytest.fixture
def home() -> Iterator[Home]:
    with receiving() as home:
        yield home


@pytest.fixture
def ranks(home: Home) -> list[RemoteDrafts]:
    """The drafts of two ranks, which see the directory themselves."""
    found = []
    for rank in (0, 1):
        place = SimpleNamespace(rank=rank, leads=rank == 0)
        member: Any = SimpleNamespace(
            directory=home.directory, files=lambda rank=rank: home.client(rank), remote=None, place=place
        )
        found.append(RemoteDrafts(member))
    return found


def save(step: int, ranks: list[RemoteDrafts]) -> None:
    """Write and commit."""
    sums = {f"rank-{rank}.pt": one.write(step, f"rank-{rank}.pt", b"of %d" % rank) for rank, one in enumerate(ranks)}
    for one in ranks:
        one.commit(step, 2, sums, None)


def test_what_is_committed_counts_and_is_taken_up(home, ranks):
    for step in (20, 40):
        save(step, ranks)
    checkpoints = Checkpoints(home.directory.checkpoints)
    assert checkpoints.steps() == [20, 40]
    assert checkpoints.verify(40).files.keys() == {"rank-0.pt", "rank-1.pt"}
    assert ranks[0].take_up() == (40, [])


def test_what_the_driver_cannot_keep_is_said_and_the_next_one_is_kept(home, ranks, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "commit", lambda *_: (_ for _ in ()).throw(OSError("the disk is full")))
        with pytest.raises(OSError, match="the disk is full"):
            save(20, ranks)
    save(40, ranks)
    assert Checkpoints(home.directory.checkpoints).steps() == [40]


def test_connection_that_breaks_is_made_again(home, ranks, monkeypatch):
    send, broken = FileClient.send, []

    def break_once(self: FileClient, *what: Any) -> None:
        if not broken:
            broken.append(self)
            self.close()
        send(self, *what)

    monkeypatch.setattr(FileClient, "send", break_once)
    save(20, ranks)
    assert Checkpoints(home.directory.checkpoints).steps() == [20]
