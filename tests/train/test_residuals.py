"""Values that codecs left out of pushes to servers: a resumed run continues with them as if nothing had happened."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from _workers import Workers
from train._served import Kept, served
from train._training import Quick, made, session
from train.test_served import over
from volary.run.checkpoints import Checkpoints
from volary.run.directory import RunDirectory
from volary.server.protocol.from_members import Saved
from volary.train.served.residuals import Residuals, Writers
from volary.train.state.rank_state import RESIDUALS, rank_states

TOPK = {"name": "topk", "ratio": 0.2}
WIDE = {"bits": 32}  # codecs leave values of 64 bits as they are
WORKERS = 2


def topk(consistency: Any = "bsp") -> Any:
    checkpoint = {"every": "3 steps", "keep_last": 9}
    return over(
        session("Wide", of=WIDE, train={"steps": 12}, checkpoint=checkpoint), WORKERS, 1, consistency, codec=TOPK
    )


LOCAL = {"name": "local", "period": 2}


def cut_short(rank: int, name: str, other: str, step: int, consistency: Any = "bsp") -> None:
    """Another run, as it would be had it been killed after the checkpoint of `step`."""
    if rank == 0:
        RunDirectory.create(Path("runs"), other, "it", topk(consistency).to_yaml(), Quick())
        of = Path("runs", name, "checkpoints", f"step-{step:08d}")
        shutil.copytree(of, Path("runs", other, "checkpoints", of.name))
    distributed.barrier()


def killed_and_stopped(rank: int, world_size: int) -> dict[str, Kept | None]:
    found = {"whole": served(rank, world_size, topk(), "whole")}
    cut_short(rank, "whole", "killed", 6)
    found["killed"] = served(rank, world_size, topk(), "killed")
    served(rank, world_size, topk(), "stopped", until={0: 7})
    found["stopped"] = served(rank, world_size, topk(), "stopped")
    found["local"] = served(rank, world_size, topk(LOCAL), "local")
    cut_short(rank, "local", "local-killed", 6, LOCAL)
    found["local-killed"] = served(rank, world_size, topk(LOCAL), "local-killed")
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Kept], Path]:
    """The results of rank 0 of three runs, and their folders."""
    workers = Workers(tmp_path_factory.mktemp("workers"))
    return workers(WORKERS + 1, killed_and_stopped)[0], workers.folder / "1/runs"


@pytest.mark.parametrize(("name", "other"), [("killed", "whole"), ("stopped", "whole"), ("local-killed", "local")])
def test_a_run_that_was_killed_or_stopped_equals_an_uninterrupted_one_bit_for_bit(runs, name, other):
    found, _ = runs
    assert len(found[name].rows) < len(found[other].rows)
    for parameter, values in found[other].parameters.items():
        assert torch.equal(found[name].parameters[parameter], values), parameter


def test_workers_that_keep_all_themselves_go_on_from_what_those_of_servers_left_out(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(runs[1] / "whole/checkpoints/step-00000006", "checkpoints/step-00000006")
    checkpoints = Checkpoints(Path("checkpoints"))
    manifest = checkpoints.verify(6)
    both = [rank_states(checkpoints.path(6), manifest, rank, WORKERS)[0][RESIDUALS] for rank in range(WORKERS)]
    it = made(0, 1, session("Wide", of=WIDE, strategy={"codec": TOPK}), disk=Quick())
    it.coordinator.saver.resume()
    found = it.coordinator.residuals.rank_state()
    assert found.keys() == both[0].keys() | both[1].keys()
    for name, kinds in found.items():
        left_out = sum(one[name]["residual"] for one in both if name in one)
        assert left_out.any()
        assert torch.equal(kinds["residual"], left_out), "one worker takes over what the other had"


# As of which contribution


class Encoding:
    """Counts what was encoded: its state is how often."""

    def __init__(self) -> None:
        self.count = 0

    def state(self) -> dict[str, Any]:
        return {"encoded": self.count}

    def take_back(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        self.count += before["encoded"] - after["encoded"]


class Writer:
    """A worker whose contributions follow one another; what it wrote, by step, and said."""

    def __init__(self, *, kept: bool = True, drops: bool = False, full: bool = False) -> None:
        self.encoding, self.full = Encoding(), full
        self.wrote: dict[int, Any] = {}
        self.said: list[Saved] = []
        self.writers = Writers()
        start = self.writers.start
        self.residuals = Residuals(self.encoding, self.write, self.said.append, start, kept=kept, drops=drops)

    def write(self, step: int, state: dict[str, Any], first: bool = False) -> dict[str, str]:
        if self.full:
            raise OSError("No space left on device")
        self.wrote[step] = state["encoded"]
        return {"rank-0.pt": "checksum"}

    def push(self, clock: int, *, held: bool = True, times: int = 1) -> None:
        self.residuals.begin(clock)
        self.encoding.count += times
        if held:
            self.residuals.held(clock)

    def save(self, snapshot: int, step: int) -> None:
        self.residuals.save(snapshot, step)
        self.writers.close()


def test_a_state_is_as_of_its_newest_contribution_however_far_the_worker_is_by_then():
    it = Writer()
    for clock in range(5):
        it.push(clock)
    for snapshot, clock in enumerate((-1, 1, 2, 4), start=1):
        it.residuals.keep(snapshot, clock)
        it.save(snapshot, snapshot)
    assert it.wrote == {1: 0, 2: 2, 3: 3, 4: 5}
    assert it.said == [Saved(snapshot, {"rank-0.pt": "checksum"}) for snapshot in (1, 2, 3, 4)]


def test_contributions_that_had_nothing_to_encode_change_nothing():
    it = Writer()
    it.push(0)
    it.push(3)
    it.residuals.keep(1, 2)
    it.save(1, 1)
    assert it.wrote == {1: 1}


def test_what_is_still_being_pushed_is_waited_for():
    it = Writer()
    it.push(0, held=False)
    it.residuals.keep(1, 0)
    it.save(1, 1)
    assert it.wrote == {}
    it.residuals.held(0)
    it.writers.close()
    assert it.wrote == {1: 1}


def test_only_what_may_still_be_asked_for_is_remembered():
    it = Writer()
    for clock in range(4):
        it.push(clock)
        it.residuals.settle(clock - 1)
        if clock == 0:
            it.residuals.keep(7, 0)
    assert set(it.residuals._after) == {0, 2}
    it.residuals.release(7)
    assert set(it.residuals._after) == {2}


def test_a_run_that_saves_nothing_before_its_end_copies_nothing_on_the_way():
    it = Writer(kept=False)
    for clock in range(4):
        it.push(clock)
    assert it.residuals._after == {}
    it.residuals.keep(1, 3)
    it.save(1, 4)
    assert it.wrote == {4: 4}


def test_what_was_encoded_in_vain_is_taken_back_as_soon_as_that_is_known():
    it = Writer(kept=False, drops=True)
    for clock in range(6):
        it.push(clock, times=10**clock)
        if clock == 1:
            it.residuals.drop(1)
        if clock == 4:  # which is known late, of two that follow each other
            it.residuals.drop(2)
            it.residuals.drop(3)
            it.residuals.drop(5)  # which is encoded all the same
    assert it.encoding.count == 110001
    it.residuals.drop(9)  # of which nothing was encoded
    it.residuals.keep(1, 5)
    it.save(1, 6)
    assert it.wrote == {6: 10001}, "what was dropped is in no checkpoint either"


def test_a_full_disk_is_said():
    it = Writer(full=True)
    it.residuals.keep(1, -1)
    it.save(1, 3)
    assert it.said == [Saved(1, {}, "No space left on device")]
