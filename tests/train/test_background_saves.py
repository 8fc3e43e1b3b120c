"""Checkpoints that are written beside the steps, in a folder or a store: they count once all files are there."""

from __future__ import annotations

import io
import itertools
import mmap
import re
import resource
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest
import safetensors.torch
import torch
from torch.distributed import HashStore

from train._training import session
from train.test_freezing import staged
from volary.run.checkpoint_files.store import ADDRESS
from volary.run.checkpoints import MANIFEST, Checkpoints
from volary.train.member.bulletin import BoardBulletin
from volary.train.own.saving import plain_values
from volary.train.recording.recorder import Recorder
from volary.train.saving import paced
from volary.train.saving.saver import GroupSaver
from volary.train.state import held
from volary.train.state.drafts import DirectoryDrafts
from volary.train.state.held import HeldMemory
from volary.train.state.state_file import StateContent, unpacked
from volary.train.state.stateful import CheckpointParts
from volary.train.state.weights import WEIGHTS, weights_content

WAIT_S = 60


class Gate:
    """This process's writer of checkpoints: each file waits for `open`, and rank 1's fails if there is a reason."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.asked, self.why = threading.Event(), threading.Event(), ""
        self.open.set()
        write = Checkpoints.write

        def gated(checkpoints: Checkpoints, step: int, name: str, content: Any) -> str:
            self.asked.set()
            assert self.open.wait(WAIT_S)
            if self.why and name == "rank-1.pt":
                raise OSError(self.why)
            return write(checkpoints, step, name, content)

        monkeypatch.setattr(Checkpoints, "write", gated)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    found = Gate(monkeypatch)
    yield found
    found.open.set()


class Ranks:
    """Two ranks, each with its folder of a store that both reach, or in one folder. weights: what they train."""

    def __init__(self, home: Path, kept_in: str) -> None:
        self.driver_is_gone, self.weights = False, torch.zeros(3)
        self.recorders = [Recorder(0), Recorder(1)]
        board: Any = HashStore()
        self.savers = []
        for rank, recorder in enumerate(self.recorders):
            folder = home / "run" / (f"rank-{rank}" if kept_in == "store" else "checkpoints")
            folder.mkdir(parents=True, exist_ok=True)
            if kept_in == "store":
                (folder / ADDRESS).write_text(f"file://{home}/store")
            drafts = DirectoryDrafts(
                Checkpoints(folder), recorder, 2, keep_best=False, alone=lambda: self.driver_is_gone
            )
            bulletin = BoardBulletin(board, rank, 2, 0)
            group: Any = SimpleNamespace(rank=rank, size=2, leads=rank == 0, bulletin=bulletin)
            self.savers.append(GroupSaver(drafts, group, recorder, self._gather(bulletin)))
        self.there = Checkpoints(home / "run" / ("rank-0" if kept_in == "store" else "checkpoints"))

    @staticmethod
    def _gather(bulletin: BoardBulletin) -> Callable[[Any], list[Any]]:
        numbers = iter(range(1000))
        return lambda value: bulletin.share(f"gathered {next(numbers)}", value)

    def all(self, work: Callable[[GroupSaver], Any]) -> list[Any]:
        """Every rank does it."""
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(work, self.savers))

    def save(self, step: int, *, last: bool = False) -> None:
        for recorder in self.recorders:
            recorder.go_on_from(step)
        parts = CheckpointParts(
            lambda: {"buffers": self.weights}, lambda: [(WEIGHTS, weights_content({"w": self.weights}))]
        )
        self.all(lambda one: one.save(parts, last=last))

    def settle(self) -> list[str]:
        """Why what was saved does not count, by rank."""
        return self.all(lambda one: one.settle())

    def said(self, kind: str) -> list[Any]:
        return [one["data"] for recorder in self.recorders for one in recorder.events if one["event"] == kind]


@pytest.fixture(params=["folder", "store"])
def ranks(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ranks]:
    monkeypatch.setitem(fsspec.config.conf, "file", {"auto_mkdir": True})
    (tmp_path / "store").mkdir()
    found = Ranks(tmp_path, request.param)
    yield found
    for one in found.savers:
        one.finish()
    for thread in threading.enumerate():
        if thread.name == "checkpoints":
            thread.join(WAIT_S)


def test_save_returns_before_anything_is_written_and_counts_as_it_was_once_all_is_there(ranks, gate):
    gate.open.clear()
    ranks.save(20)
    assert gate.asked.wait(WAIT_S)
    assert (ranks.there.steps(), ranks.said("checkpoint")) == ([], [])
    ranks.weights += 1  # the next step
    gate.open.set()
    assert ranks.settle() == ["", ""]
    ranks.there.bring(20)
    assert ranks.there.verify(20).files.keys() == {"rank-0.pt", "rank-1.pt", WEIGHTS}
    assert [one["step"] for one in ranks.said("checkpoint")] == [20]
    assert [one.saved for one in ranks.savers] == [20, 20]
    assert safetensors.torch.load_file(ranks.there.path(20) / WEIGHTS)["w"].tolist() == [0, 0, 0]
    own = torch.load(ranks.there.path(20) / "rank-1.pt")
    assert own["buffers"].tolist() == [0, 0, 0]


def test_save_waits_for_the_one_before_so_that_only_one_is_under_way(ranks, gate):
    gate.open.clear()
    ranks.save(20)
    assert gate.asked.wait(WAIT_S)
    next_one = threading.Thread(target=ranks.save, args=(40,))
    next_one.start()
    assert (ranks.there.steps(), ranks.said("checkpoint")) == ([], [])
    gate.open.set()
    next_one.join(WAIT_S)
    assert ranks.settle() == ["", ""]
    assert [one["step"] for one in ranks.said("checkpoint")] == [20, 40]


def test_writer_pauses_after_each_piece_until_somebody_waits_for_it(ranks, monkeypatch):
    monkeypatch.setattr(paced, "PAUSES", 1e9)
    pausing = threading.Event()
    pause = paced.Pace.pause
    monkeypatch.setattr(paced.Pace, "pause", lambda pace: pausing.set() or pause(pace))
    ranks.weights = torch.rand(paced.PIECE_BYTES)
    ranks.save(20)
    assert pausing.wait(WAIT_S)
    assert ranks.there.steps() == []
    ranks.save(40)  # waits for the one before
    assert ranks.there.steps() == [20]
    assert ranks.settle() == ["", ""]
    ranks.there.bring(40)
    assert ranks.there.verify(40).step == 40
    assert torch.equal(safetensors.torch.load_file(ranks.there.path(40) / WEIGHTS)["w"], ranks.weights)


def test_what_one_rank_cannot_write_is_one_sentence_and_older_checkpoints_stay(ranks, gate):
    ranks.save(20)
    assert ranks.settle() == ["", ""]
    gate.why = "s3://bucket: the store failed 7 times in 15.75 s (nobody there)"
    ranks.save(40)
    assert ranks.settle() == [f"rank 1: {gate.why}"] * 2
    assert [one["reason"] for one in ranks.said("checkpoint_failed")] == [
        f"rank 1: {gate.why}; training goes on, older checkpoints stay"
    ]
    assert (ranks.there.steps(), [one.saved for one in ranks.savers]) == ([20], [20, 20])
    gate.why = ""
    ranks.save(60)
    assert ranks.settle() == ["", ""]
    assert ranks.there.steps() == [20, 60]


def test_last_save_is_made_without_a_driver_and_what_was_under_way_never_counts(ranks, gate):
    gate.open.clear()
    ranks.save(20)
    assert gate.asked.wait(WAIT_S)
    ranks.driver_is_gone = True
    threading.Timer(0.5, gate.open.set).start()
    ranks.save(40, last=True)
    assert ranks.there.steps()[-1] == 40
    assert ranks.there.verify(40).step == 40


def test_ranks_without_memory_for_a_copy_write_at_once(ranks, gate, monkeypatch):
    monkeypatch.setattr(held, "_BLOCK_BYTES", 64)
    memory = HeldMemory(lambda: 100)
    monkeypatch.setattr(ranks.savers[1]._background, "_memory", memory)
    ranks.weights = torch.ones(30)
    ranks.save(20)
    assert ranks.there.steps() == [20]
    assert (memory.size_bytes, ranks.there.verify(20).step) == (0, 20)


def test_copies_of_a_state_are_in_memory_that_the_next_save_uses_again():
    memory = HeldMemory()
    values = torch.arange(12.0).view(3, 4)
    state = {
        "turned": values.t(),
        "tied": [values, values.detach()],
        "part": values[1:2],
        "words": {"lr": 0.1, 5: "five", "none": torch.empty(0), "half": torch.ones(3, dtype=torch.bfloat16)},
        "flags": torch.tensor([True, False]),
    }
    for _ in range(2):
        memory.begin()
        found = memory.copy(state)
    assert memory.size_bytes == held._BLOCK_BYTES
    values.zero_()
    assert (found["turned"].t().flatten().tolist(), found["turned"].stride()) == (list(range(12)), (1, 4))
    assert found["part"].tolist() == [[4, 5, 6, 7]]
    assert found["tied"][0].data_ptr() == found["tied"][1].data_ptr()
    assert (found["words"]["lr"], found["words"][5], found["words"]["none"].shape) == (0.1, "five", (0,))
    assert (found["words"]["half"].tolist(), found["flags"].tolist()) == ([1, 1, 1], [True, False])


@pytest.mark.skipif(not hasattr(resource, "RUSAGE_THREAD"), reason="the system counts no thread's page faults")
def test_whether_a_state_can_be_read_again_is_found_out_without_its_values(monkeypatch):
    written = list[int]()
    packed = plain_values.packed

    def measured(state: Any) -> bytes:
        written.append(len(found := packed(state)))
        return found

    monkeypatch.setattr(plain_values, "packed", measured)
    large = {"state": {0: {"exp_avg": torch.ones(1 << 20), "step": torch.tensor(3.0)}}, "list": [torch.ones(1 << 20)]}
    assert plain_values.loads(large) and not plain_values.loads({**large, "other": Gate})
    assert written[0] < 10_000
    assert large["state"][0]["exp_avg"].numel() == 1 << 20


def test_memory_that_was_prepared_is_what_the_first_copy_goes_to_without_a_page_that_is_new():
    state = {"large": torch.ones(40 << 18), "less": torch.ones(20 << 18), "small": [torch.ones(1000) for _ in range(9)]}
    memory = HeldMemory()
    memory.reserve(state)
    prepared = memory.size_bytes
    memory.touch(lambda: False)
    memory.begin()
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for name in reversed(state):
        found = memory.copy({name: state[name]})
    faults = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before
    assert (memory.size_bytes, found["large"].sum().item()) == (prepared, 40 << 18)
    assert faults < (60 << 20) // mmap.PAGESIZE / 10, faults


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system does not say how memory is mapped")
def test_memory_of_copies_is_of_huge_pages_where_there_are_any_and_not_for_processes_that_are_forked():
    found = HeldMemory().copy(torch.ones(20 << 18))
    ranges = Path("/proc/self/smaps").read_text().split("VmFlags:")
    for maps, following in itertools.pairwise(ranges):
        first, _, last = next(one for one in maps.splitlines() if re.match("[0-9a-f]+-[0-9a-f]+ ", one)).partition("-")
        if int(first, 16) <= found.data_ptr() < int(last.split()[0], 16):
            flags = set(following.splitlines()[0].split())
            assert ("hg" in flags) == Path("/sys/kernel/mm/transparent_hugepage").exists()
            assert ("dc" in flags, "sh" in flags) == (True, False)
            return
    raise AssertionError("no such memory")


def test_a_tensor_is_written_without_a_sum_over_all_of_it_before():
    values, written = torch.ones(40 << 18), io.BytesIO()
    StateContent({"values": values})(written)
    with zipfile.ZipFile(written) as file:
        assert all(zlib.crc32(values.numpy()) != one.CRC for one in file.infolist())
    assert torch.equal(unpacked(written.getvalue(), Path("state"))["values"], values)
    assert torch.serialization.get_crc32_options()  # for whoever else saves


def test_save_that_comes_while_memory_is_prepared_ends_that_and_is_written(ranks):
    parts = CheckpointParts(lambda: {"buffers": ranks.weights}, tuple)
    ranks.all(lambda one: one.prepare(parts))
    ranks.save(20)
    assert ranks.settle() == ["", ""]
    assert ranks.there.verify(20).step == 20


@pytest.mark.parametrize("every, prepares", [("3 steps", True), ("30 steps", False), ("never", False)])
def test_memory_is_prepared_where_a_save_is_to_come_before_the_last_step(every, prepares, tmp_path, monkeypatch):
    found = []
    monkeypatch.setattr(HeldMemory, "touch", lambda memory, enough: found.append(memory.size_bytes))
    settings = {"train": {"steps": 6}, "checkpoint": {"every": every}, "evaluate": {"every": "never"}}
    staged(0, 1, session("Deep", strategy={}, **settings), str(tmp_path / "checkpoints"))
    assert bool(found) == prepares


def test_a_state_that_cannot_be_written_ends_training_and_not_the_thread(tmp_path):
    ranks = Ranks(tmp_path, "folder")
    bad = CheckpointParts(dict, lambda: [(WEIGHTS, weights_content({"w": torch.ones(2, dtype=torch.complex128)}))])
    recorder, saver = ranks.recorders[0], ranks.savers[0]
    alone: Any = SimpleNamespace(rank=0, size=1, leads=True, bulletin=BoardBulletin(HashStore(), 0, 1, 0))
    saver = GroupSaver(DirectoryDrafts(ranks.there, recorder, 2, keep_best=False), alone, recorder, lambda one: [one])
    saver.save(bad)
    with pytest.raises(TypeError, match="complex128"):
        saver.settle()


def test_save_that_was_killed_in_the_middle_leaves_no_checkpoint_and_the_next_one_clears_it_away(ranks):
    ranks.save(20)
    assert ranks.settle() == ["", ""]
    root = Path(str(ranks.there.files.place(20))).parent
    stored = ranks.there.in_store
    draft = ranks.there.folder.parent.parent / "store" / "step-00000040" if stored else root / ".step-00000040"
    draft.mkdir()
    (draft / "rank-0.pt").write_bytes(b"half")
    assert ranks.there.steps() == [20]
    ranks.save(60)
    assert ranks.settle() == ["", ""]
    assert (draft.exists(), ranks.there.steps()) == (False, [20, 60])
    assert ranks.there.manifest(60).files.keys() == {"rank-0.pt", "rank-1.pt", WEIGHTS}
    assert not list(draft.parent.glob(f"*40*/{MANIFEST}"))
