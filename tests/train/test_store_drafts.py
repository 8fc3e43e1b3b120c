"""Checkpoints in a store: uploaded while training continues, counted once the files of all ranks are there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest
from torch.distributed import HashStore

from volary.run.checkpoint_files.store import ADDRESS, CheckpointsInStore
from volary.run.checkpoints import MANIFEST, Checkpoints
from volary.train.member.bulletin import BoardBulletin
from volary.train.recording.recorder import Recorder
from volary.train.state.drafts import LocalDrafts
from volary.train.state.store_drafts import StoreDrafts

WAIT_S = 60


class Held:
    """Uploads of the store that this process makes: each waits for `open`, and fails if there is a reason."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.asked, self.why = threading.Event(), threading.Event(), ""
        self.open.set()
        upload = CheckpointsInStore.upload

        def held(store: CheckpointsInStore, step: int, path: Path) -> None:
            self.asked.set()
            assert self.open.wait(WAIT_S)
            if self.why and path.name == "rank-1.pt":
                raise OSError(self.why)
            upload(store, step, path)

        monkeypatch.setattr(CheckpointsInStore, "upload", held)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    found = Held(monkeypatch)
    yield found
    found.open.set()


class Ranks:
    """Two ranks, each with its folder, and a store that both reach."""

    def __init__(self, home: Path) -> None:
        self.driver_is_gone = False
        self.recorders = [Recorder(0), Recorder(1)]
        board: Any = HashStore()
        self.drafts = []
        for rank, recorder in enumerate(self.recorders):
            folder = home / f"rank-{rank}"
            folder.mkdir()
            (folder / ADDRESS).write_text(f"file://{home}/store")
            checkpoints = Checkpoints(folder)
            assert isinstance(checkpoints.files, CheckpointsInStore)
            local = LocalDrafts(checkpoints, recorder, 2, keep_best=False)
            mine = BoardBulletin(board, rank, 2, 0)
            self.drafts.append(StoreDrafts(local, checkpoints.files, recorder, mine, lambda: self.driver_is_gone))
        self.there = self.drafts[0].checkpoints

    def all(self, work: Callable[[StoreDrafts, int], Any]) -> list[Any]:
        """Every rank does it."""
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(work, self.drafts, (0, 1)))

    def save(self, step: int, *, last: bool = False) -> None:
        drafts: list[Any] = self.all(lambda one, _: one.at_once()) if last else list(self.drafts)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda one: one.begin(step), drafts))
            names = ["rank-0.pt", "rank-1.pt"]
            sums = dict(
                zip(names, pool.map(lambda one, name: one.write(step, name, b"%d" % step), drafts, names), strict=True)
            )
            list(pool.map(lambda one: one.commit(step, 2, sums, None), drafts))

    def settle(self) -> list[str]:
        """Why what was saved does not count, by rank."""

        def settled(one: StoreDrafts, _: int) -> str:
            try:
                one.settle()
            except OSError as error:
                return str(error)
            return ""

        return self.all(settled)

    def said(self, kind: str) -> list[Any]:
        return [one["data"] for recorder in self.recorders for one in recorder.events if one["event"] == kind]


@pytest.fixture
def ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ranks]:
    monkeypatch.setitem(fsspec.config.conf, "file", {"auto_mkdir": True})
    (tmp_path / "store").mkdir()
    found = Ranks(tmp_path)
    yield found
    for one in found.drafts:
        one.close()
    for thread in threading.enumerate():
        if thread.name == "checkpoints":
            thread.join(WAIT_S)


def test_save_returns_before_anything_is_uploaded_and_counts_once_all_is_there(ranks, held):
    held.open.clear()
    ranks.save(20)
    assert held.asked.wait(WAIT_S)
    assert (ranks.there.steps(), ranks.said("checkpoint")) == ([], [])
    held.open.set()
    assert ranks.settle() == ["", ""]
    assert ranks.there.verify(20).files.keys() == {"rank-0.pt", "rank-1.pt"}
    assert [one["step"] for one in ranks.said("checkpoint")] == [20]
    assert list(ranks.there.folder.rglob("rank-*.pt")) == [ranks.there.path(20) / f"rank-{rank}.pt" for rank in (0, 1)]


def test_save_waits_for_the_one_before_so_that_only_one_is_under_way(ranks, held):
    held.open.clear()
    ranks.save(20)
    assert held.asked.wait(WAIT_S)
    next_one = threading.Thread(target=ranks.save, args=(40,))
    next_one.start()
    assert (ranks.there.folder / ".upload-of-rank-0" / "rank-0.pt").read_bytes() == b"20"
    assert ranks.there.steps() == []
    held.open.set()
    next_one.join(WAIT_S)
    assert ranks.settle() == ["", ""]
    assert [one["step"] for one in ranks.said("checkpoint")] == [20, 40]


def test_what_one_rank_cannot_upload_is_one_sentence_and_older_checkpoints_stay(ranks, held):
    ranks.save(20)
    assert ranks.settle() == ["", ""]
    held.why = "s3://bucket: the store failed 7 times in 15.75 s (nobody there)"
    ranks.save(40)
    assert ranks.settle() == [f"rank 1: {held.why}", held.why]
    assert [one["reason"] for one in ranks.said("checkpoint_failed")] == [
        f"step 40: rank 1: {held.why}; training goes on, older checkpoints stay"
    ]
    assert (ranks.there.steps(), ranks.drafts[0].newest) == ([20], 20)
    held.why = ""
    ranks.save(60)
    assert ranks.settle() == ["", ""]
    assert ranks.there.steps() == [20, 60]


def test_last_save_is_made_without_a_driver_and_what_was_under_way_never_counts(ranks, held):
    held.open.clear()
    ranks.save(20)
    assert held.asked.wait(WAIT_S)
    ranks.driver_is_gone = True
    held.open.set()
    ranks.save(40, last=True)
    assert ranks.there.steps()[-1] == 40
    assert ranks.there.verify(40).step == 40


def test_save_that_was_killed_in_the_middle_leaves_no_checkpoint_and_the_next_one_clears_it_away(ranks, held, tmp_path):
    ranks.save(20)
    assert ranks.settle() == ["", ""]
    draft = tmp_path / "store" / "step-00000040"
    draft.mkdir()
    (draft / "rank-0.pt").write_bytes(b"half")
    assert ranks.there.steps() == [20]
    ranks.save(60)
    assert ranks.settle() == ["", ""]
    assert (draft.exists(), ranks.there.steps()) == (False, [20, 60])
    assert (tmp_path / "store" / "step-00000060" / MANIFEST).exists()
