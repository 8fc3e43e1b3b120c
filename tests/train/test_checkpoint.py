"""A checkpoint: its content, how exactly training continues from it, and errors while it is written."""

from __future__ import annotations

import errno
import io
import pickle
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import safetensors.torch
import torch

from train._training import OVERLAPPED, Quick, Trained, looked_at, made, session, started, trained
from volary.comm.groups import group
from volary.errors import NotSaved, RunError
from volary.run.checkpoints import MANIFEST, ROSTER, SHARED, Checkpoints, _seal, digest
from volary.train.loop import train
from volary.train.saving import saver
from volary.train.state.optimizer_state import OPTIMIZER, optimizer_file
from volary.train.state.weights import WEIGHTS


class Full(Quick):
    """Full when one of these files is written, or a folder is renamed to something of that name."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def create(self, path: Path, mode: int = 0o644) -> BinaryIO:
        file = super().create(path, mode)
        if path.name in self.names:
            file.close()
            return Path("/dev/full").open("wb", buffering=0)
        return file

    def rename(self, old: Path, new: Path) -> None:
        if new.name in self.names:
            raise OSError(errno.ENOSPC, "No space left on device", str(new))
        super().rename(old, new)


def dropping(steps: int = 12, every: str = "3 steps", **settings: Any) -> Any:
    rule = {"name": "adam", "lr": 0.02}
    checkpoint = {"every": every, "keep_last": 9, **settings.pop("checkpoint", {})}
    settings.setdefault("source", {"name": "points", "samples": 44})  # batch norm takes no batch of 1
    return session("Dropping", optimizer=rule, train={"steps": steps}, checkpoint=checkpoint, **settings)


IN_PIECES = {**OVERLAPPED, "bucket_mb": 1e-4}


def quickly(rank: int, world_size: int, one: Any, folder: str, **more: Any) -> Trained:
    return trained(rank, world_size, one, folder, **{"disk": Quick(), **more})


def stop_and_resume(rank: int, world_size: int, strategy: dict[str, Any]) -> tuple[Trained, Trained, Trained]:
    one = dropping(strategy=strategy)
    whole = quickly(rank, world_size, one, "whole")
    stopped = quickly(rank, world_size, one, "stopped", until=lambda step: rank == world_size - 1 and step == 7)
    return whole, stopped, quickly(rank, world_size, one, "stopped")


def flat(state: Any) -> Any:
    """The same in plain values, which compare."""
    if isinstance(state, dict):
        return {key: flat(value) for key, value in state.items()}
    if isinstance(state, list):
        return [flat(value) for value in state]
    return state.tolist() if isinstance(state, torch.Tensor) else state


@pytest.mark.parametrize(("world_size", "strategy"), [(1, {}), (2, {}), (2, IN_PIECES)])
def test_a_stopped_and_resumed_run_equals_an_uninterrupted_one_bit_for_bit(workers, world_size, strategy):
    everyone = workers(world_size, stop_and_resume, strategy)
    for whole, stopped, resumed in everyone:
        assert (whole.outcome, stopped.outcome, resumed.outcome) == ("finished", "stopped", "finished")
        assert [row.step for row in stopped.rows + resumed.rows] == list(range(1, 13))
        assert [row.loss for row in stopped.rows + resumed.rows] == whole.losses
        for name, parameter in whole.parameters.items():
            assert torch.equal(parameter, resumed.parameters[name])
    folder = workers.folder / "1"
    whole, resumed = (Checkpoints(folder / name).verify(12).files for name in ("whole", "stopped"))
    ranks = range(world_size)
    optimizer = [OPTIMIZER] if world_size == 1 else [optimizer_file(f"worker-{rank}") for rank in ranks]
    assert sorted(whole) == [WEIGHTS, *optimizer, *(f"rank-{rank}.pt" for rank in ranks), ROSTER, SHARED]
    for file in (*optimizer, SHARED):
        states = [torch.load(folder / name / "step-00000012" / file) for name in ("whole", "stopped")]
        assert flat(states[0]) == flat(states[1]), "optimiser, and the position in the data"
        # its bytes depend on which of its words were the same object
        assert whole.pop(file) and resumed.pop(file)
    assert whole == resumed, "weights, generators, and every rank's statistics"


def go_on_elsewhere(rank: int, world_size: int) -> tuple[Trained, Trained, Trained]:
    """In many pieces on two workers, from there in one bucket, and from there in shared memory."""
    strategies = (IN_PIECES, OVERLAPPED, {})
    ends = (3, 6, 9)
    for strategy, end in zip(strategies, ends, strict=True):
        quickly(rank, world_size, exact(strategy), "c", until=lambda step, end=end: step == end)
    rest = quickly(rank, world_size, exact(IN_PIECES), "c")
    pictures = [session("Pictures", optimizer={"name": "adam", "lr": 0.02}, strategy=one) for one in strategies]
    for one, end in zip(pictures, ends, strict=True):
        found = quickly(rank, world_size, one, "pictures", until=lambda step, end=end: step == end)
    return rest, found, quickly(rank, world_size, pictures[0], "not stopped", until=lambda step: step == 9)


def exact(strategy: dict[str, Any]) -> Any:
    return session("Exact", optimizer={"name": "adam", "lr": 0.02}, train={"steps": 12}, strategy=strategy)


def test_a_checkpoint_is_gone_on_from_with_other_buckets_and_another_way_to_exchange(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    alone = quickly(0, 1, exact({}), "alone")
    everyone = workers(2, go_on_elsewhere)
    for rest, pictures, not_stopped in everyone:
        assert [row.step for row in rest.rows] == [10, 11, 12]
        torch.testing.assert_close(rest.parameters, alone.parameters, rtol=0, atol=1e-11)
        torch.testing.assert_close(pictures.parameters, not_stopped.parameters, rtol=0, atol=1e-11)
    again = quickly(0, 1, exact({}), workers.folder / "1" / "c", until=lambda step: step == 12)
    assert again.rows == [], "it was done"


def resume_alone(rank: int, world_size: int) -> None:
    quickly(rank, world_size, exact(IN_PIECES), "c", until=lambda step: step == 5)


def test_a_checkpoint_is_gone_on_from_with_another_number_of_workers(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    workers(2, resume_alone)
    rest = quickly(0, 1, exact({}), workers.folder / "1" / "c")
    assert [row.step for row in rest.rows] == list(range(6, 13))
    whole = quickly(0, 1, exact({}), "alone")
    torch.testing.assert_close(rest.parameters, whole.parameters, rtol=0, atol=1e-11)


def test_a_flipped_byte_in_any_file_of_the_newest_is_found_and_the_one_before_is_used(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole = quickly(0, 1, dropping(), "whole")
    one = dropping(checkpoint={"keep_last": 1, "keep_best": False})
    quickly(0, 1, dropping(), "stopped", until=lambda step: step == 8)
    for number, name in enumerate((WEIGHTS, OPTIMIZER, SHARED, "rank-0.pt", MANIFEST)):
        folder = f"damaged-{number}"
        shutil.copytree("stopped", folder)
        path = Checkpoints(Path(folder)).path(8) / name
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 4
        path.write_bytes(data)
        it = made(0, 1, one, folder, disk=Quick())
        assert it.coordinator.saver.resume().step == 6
        assert (it.recorder.step, it.coordinator.saver.newest) == (6, "step 6")
        (warning,) = looked_at(it).events("warning")
        assert name in warning["text"]
        assert warning["text"].endswith("; the checkpoint of step 6 is used")
        train(it)
        for parameter, expected in whole.parameters.items():
            assert torch.equal(looked_at(it).parameters[parameter], expected)
        assert Checkpoints(Path(folder)).steps() == [12]
        assert Path(folder, "damaged-step-00000008", name).exists(), "kept to be looked at"


def test_a_damaged_checkpoint_never_outlives_the_good_ones_that_follow(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    quickly(0, 1, dropping(), "c", until=lambda step: step == 8)
    (Path("c/step-00000008") / WEIGHTS).write_bytes(b"")
    (Path("c/step-00000006") / MANIFEST).write_bytes(b"")
    quickly(0, 1, dropping(checkpoint={"keep_last": 1, "every": "1 step"}), "c", until=lambda step: step == 4)
    assert Checkpoints(Path("c")).steps() == [4]
    Checkpoints(Path("c")).verify(4)


def test_where_none_is_whole_nothing_is_begun_anew_without_being_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    quickly(0, 1, dropping(), "c", until=lambda step: step == 3)
    (Path("c/step-00000003") / SHARED).unlink()
    it = made(0, 1, dropping(), "c", disk=Quick())
    with pytest.raises(RunError, match="none of its checkpoints is whole"):
        it.coordinator.saver.resume()


class Trap:
    """Would run code of its author's where it is unpickled."""

    def __reduce__(self) -> Any:
        return (Path.touch, (Path("sprung").absolute(),))


def forge(path: Path, name: str, data: bytes) -> None:
    """Another file in a checkpoint, with a manifest that is right about it."""
    (path / name).write_bytes(data)
    manifest = Checkpoints(path.parent).manifest(int(path.name[5:]))
    (path / MANIFEST).write_bytes(_seal(replace(manifest, files=manifest.files | {name: digest(data)})))


@pytest.mark.parametrize("name", [SHARED, OPTIMIZER, "rank-0.pt", WEIGHTS])
@pytest.mark.parametrize("kind", ["pickle", "zip", "garbage"])
def test_a_file_that_holds_more_than_tensors_is_refused_in_a_sentence_and_nothing_of_it_runs(
    tmp_path, monkeypatch, name, kind
):
    monkeypatch.chdir(tmp_path)
    quickly(0, 1, dropping(), "c", until=lambda step: step == 3)
    buffer = io.BytesIO()
    torch.save({"trap": Trap()}, buffer)
    forge(Path("c/step-00000003"), name, {"pickle": pickle.dumps(Trap()), "zip": buffer.getvalue()}.get(kind, b"x" * 9))
    it = made(0, 1, dropping(), "c", disk=Quick())
    with pytest.raises(RunError) as caught:
        it.coordinator.saver.resume()
    assert "weights_only" not in str(caught.value)
    if name == WEIGHTS:
        assert "the checkpoint's weights are no safetensors file" in str(caught.value)
    else:
        assert str(caught.value) == (
            f"{Path('c/step-00000003').absolute() / name}: damaged, or holds more than tensors and plain values: "
            "refused, nothing of it ran"
        )
    assert not Path("sprung").exists()


def test_the_last_few_and_the_best_are_kept_and_the_best_has_its_metric(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    every = {"every": "1 step", "keep_last": 2}
    one = dropping(9, evaluate={"every": "1 step"}, checkpoint=every, loss={"name": "cross_entropy", "metric": "loss"})
    found = quickly(0, 1, one, "best")
    losses = {step: figures["loss"] for step, figures in found.metrics}
    best = min(losses, key=lambda step: losses[step])
    checkpoints = Checkpoints(Path("best"))
    assert set(checkpoints.steps()) == {best, 8, 9}
    assert checkpoints.manifest(best).metric == losses[best]
    assert [one["value"] for one in found.events("best")][-1] == losses[best]
    quickly(0, 1, dropping(9, checkpoint={**every, "keep_best": False}, evaluate={"every": "1 step"}), "last")
    assert Checkpoints(Path("last")).steps() == [8, 9]


def test_an_older_best_stays_when_the_better_one_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    it = made(0, 1, dropping(checkpoint={"keep_last": 1}), "c", disk=Full("step-00000003"))
    for step, metric in enumerate((0.5, None, 0.7, None, None), start=1):
        it.recorder.go_on_from(step)
        it.coordinator.saver.save(metric)
    it.coordinator.saver.finish()
    assert Checkpoints(Path("c")).steps() == [1, 5]


def fill_the_disk(rank: int, world_size: int) -> dict[str, tuple[Trained, str, list[int]]]:
    found, its = {}, []
    for name in (WEIGHTS, "rank-1.pt", MANIFEST, "step-00000006"):
        full = Full(name)

        def empty_it(step: int, full: Full = full) -> bool:
            if step == 7:  # after the second of three saves
                its[-1].coordinator.saver.finish()
                full.names = ()
            return False

        it = made(rank, world_size, dropping(7), name, disk=full, until=empty_it)
        its.append(it)
        with started(it):
            outcome = train(it)
        torch.distributed.barrier()
        found[name] = looked_at(it, outcome), it.coordinator.saver.newest, Checkpoints(Path(name)).steps()
    return found


def test_a_full_disk_on_any_rank_does_not_end_training_and_is_said(workers):
    first, second = workers(2, fill_the_disk)
    for name, (found, newest, steps) in first.items():
        assert (found.outcome, len(found.rows)) == ("finished", 7)
        assert (newest, steps) == ("step 7", [3, 7] if name == "step-00000006" else [7])
        reasons = [one["reason"] for one in found.events("checkpoint_failed")]
        assert len(reasons) == (1 if name == "step-00000006" else 2)
        assert all("No space left on device" in one for one in reasons)
        assert all(one.endswith("training goes on, older checkpoints stay") for one in reasons)
        assert all(("rank 1" in one) == (name == "rank-1.pt") for one in reasons)
        assert [one["step"] for one in found.events("checkpoint")] == steps
        assert second[name][0].outcome == "finished"
        assert not second[name][0].events("checkpoint_failed"), "rank 0 says it for all"


def lose_the_board(rank: int, world_size: int) -> tuple[Trained, list[int]]:
    def until(step: int) -> bool:
        if step == 5:  # ranks have met, and agreed on the order in which gradients leave
            assert group._store is not None
            it.coordinator.saver.finish()
            group._store.close()
        return step == 8

    it = made(rank, world_size, dropping(), "c", disk=Quick(), until=until)
    with started(it):
        return looked_at(it, train(it)), Checkpoints(Path("c")).steps()


def test_ranks_save_among_themselves_once_the_board_at_which_they_met_is_gone(workers):
    for found, steps in workers(2, lose_the_board):
        assert (found.outcome, len(found.rows), steps) == ("stopped", 8, [3, 8]), "the last one needs no driver"


@pytest.fixture
def at_once(monkeypatch):
    """The last save is tried again without a pause."""
    monkeypatch.setattr(saver, "TRY_AGAIN_AFTER_S", (0.0, 0.0, 0.0))


class FullFor(Full):
    """Full for so many tries."""

    def __init__(self, tries: int, *names: str) -> None:
        super().__init__(*names)
        self.tries = tries

    def create(self, path: Path, mode: int = 0o644) -> BinaryIO:
        if path.name in self.names and self.tries == 0:
            self.names = ()
        self.tries -= path.name in self.names
        return super().create(path, mode)


def test_the_last_save_is_tried_again_until_there_is_room(tmp_path, monkeypatch, at_once):
    monkeypatch.chdir(tmp_path)
    found = quickly(0, 1, dropping(3), "c", disk=FullFor(3, SHARED))
    assert found.outcome == "finished"
    reasons = [one["reason"] for one in found.events("checkpoint_failed")]
    needed = r"\(needs [1-9][\d,]* bytes; [1-9][\d,]* are free there\)"
    path = re.escape(str(Path("c/.step-00000003", SHARED).absolute()))
    assert len(reasons) == 3
    for reason in reasons:
        assert re.fullmatch(
            f"{path}: No space left on device {needed}; it is the last one, and tried again in 0 s", reason
        )
    assert Checkpoints(Path("c")).verify(3).step == 3


@pytest.mark.parametrize("ending", ["finished", "stopped"])
def test_a_run_whose_last_state_cannot_be_saved_fails_and_keeps_what_there_is(tmp_path, monkeypatch, at_once, ending):
    monkeypatch.chdir(tmp_path)
    quickly(0, 1, dropping(6), "c", until=lambda step: step == 3)
    with pytest.raises(NotSaved) as caught:
        quickly(0, 1, dropping(6), "c", disk=Full(WEIGHTS), until=lambda step: ending == "stopped" and step == 5)
    step = 6 if ending == "finished" else 5
    said = str(caught.value)
    assert said.startswith(f"the last checkpoint, of step {step}, could not be written: {Path('c').absolute()}/.step-")
    assert said.endswith(" are free there); kept: step 3")
    assert (NotSaved.exit_code, Checkpoints(Path("c")).steps()) == (1, [3])
    assert [path.name for path in Path("c").iterdir()] == ["step-00000003"], "nothing half is left"


def fail_at_the_end(rank: int, world_size: int) -> str:
    saver.TRY_AGAIN_AFTER_S = (0.0, 0.0)
    try:
        quickly(rank, world_size, dropping(3), "c", disk=Full("rank-1.pt"))
    except NotSaved as error:
        return str(error)
    return ""


def test_all_ranks_fail_where_one_cannot_write_at_the_end(workers):
    for said in workers(2, fail_at_the_end):
        assert said.startswith("the last checkpoint, of step 3, could not be written: rank 1: /")


class Sticky(Quick):
    """Cannot clear away what a killed save has left of step 3."""

    def remove(self, path: Path) -> None:
        if path.name != ".step-00000003":
            super().remove(path)


def refuse_to_begin(rank: int, world_size: int) -> Trained:
    Path("c/.step-00000003").mkdir(parents=True, exist_ok=True)
    return trained(rank, world_size, dropping(6), "c", disk=Sticky())


def test_a_draft_that_cannot_even_be_begun_does_not_end_training(workers):
    first, second = workers(2, refuse_to_begin)
    (failure,) = first.events("checkpoint_failed")
    assert "File exists" in failure["reason"]
    assert [one["step"] for one in first.events("checkpoint")] == [6]
    assert (first.outcome, second.outcome) == ("finished", "finished")


def test_weights_are_safetensors_by_torch_s_names_and_the_state_is_for_a_weights_only_reader(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one = session("Tied", train={"steps": 3}, checkpoint={"every": "3 steps"})
    it = made(0, 1, one, "c", disk=Quick())
    train(it)
    path = Checkpoints(Path("c")).path(3)
    weights = safetensors.torch.load_file(path / WEIGHTS)
    module = it.flow.module
    # a tied matrix stands once, a buffer that torch would not save not at all, one that is a view is no larger than it
    assert set(weights) == {"into.weight", "out.weight", "out.bias", "seen", "same"}
    assert all(torch.equal(weights[name], module.state_dict()[name]) for name in weights)
    assert sum(file.stat().st_size for file in path.iterdir()) < 40_000
    for name in (OPTIMIZER, SHARED, "rank-0.pt"):
        torch.load(io.BytesIO((path / name).read_bytes()), weights_only=True)

    again = made(0, 1, session("Tied", train={"steps": 3, "seed": 5}), "other", disk=Quick()).flow.module
    it = made(0, 1, one, "c", disk=Quick())
    it.coordinator.saver.resume()
    for name, tensor in module.state_dict().items():
        assert torch.equal(it.flow.module.state_dict()[name], tensor)
    assert not torch.equal(again.into.weight, module.into.weight)
    assert it.flow.module.back.weight is it.flow.module.into.weight
    assert it.flow.module.mask.tolist()[:2] == [False, True], "what torch would not save decides the rest all the same"


def test_weights_come_back_in_any_layout(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one = session("Pictures", train={"steps": 3}, checkpoint={"every": "3 steps"})
    found = trained(0, 1, one, "c", disk=Quick())
    it = made(0, 1, one, "c", disk=Quick())
    it.coordinator.saver.resume()
    assert not it.flow.module.two.weight.is_contiguous()
    for name, parameter in it.flow.module.named_parameters():
        assert torch.equal(parameter, found.parameters[name]), name
