"""A loop of one's own that saves goes on at that very batch, bit for bit; what cannot be kept is named."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset

from _workers import alone, joined
from data._stores import s3_server
from faults._running import VOLARY, running
from train._own_workers import worker_in
from volary import Result
from volary.cli.command.main import run
from volary.errors import BadInput, SettingError
from volary.run.checkpoints import SHARED, Checkpoints
from volary.run.directory import RunDirectory
from volary.session.changing import FIXED_OF_LOOP, changes, refuse
from volary.session.reading.problems import SessionError
from volary.session.script import Script
from volary.train.own.worker import Worker
from volary.train.recording.recorder import Recorder
from volary.train.state.drafts import DirectoryDrafts
from volary.train.state.seeds import seed_all


class Killed(Exception):
    """Stands for the end of the process."""


class Noisy(Dataset[Any]):
    """Samples that are augmented at random, in the process that reads them."""

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> Any:
        return torch.full((4,), index / 30) + 0.1 * torch.randn(4), index % 2


class Streamed(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([(torch.full((4,), index / 30), index % 2) for index in range(30)])


def drawn(generator: torch.Generator) -> DataLoader[Any]:
    return DataLoader(Noisy(), batch_size=8, shuffle=True, generator=generator)


LOADERS: dict[str, Callable[[], DataLoader[Any]]] = {
    "shuffled": lambda: DataLoader(Noisy(), batch_size=8, shuffle=True),
    "by a generator of its own": lambda: drawn(torch.Generator().manual_seed(4)),
    "a stream": lambda: DataLoader(Streamed(), batch_size=8),
}


def loop(worker: Worker, loader: DataLoader[Any], every: int, die: int) -> dict[str, Any]:
    """Three epochs of four steps; saves each `every` steps and after the second epoch, and dies in step `die`."""
    seed_all(7 + worker.rank)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 2))
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model, optimizer = worker.distribute(model, optimizer)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 2], gamma=0.5)
    kept = {"model": model, "optimizer": optimizer, "schedule": schedule, "average": average}
    steps = worker.restore(**kept, steps=0)["steps"]
    seen = []
    for epoch in worker.epochs(3):
        for inputs, labels in worker.feed(loader):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            average.update_parameters(model)
            steps += 1
            seen.append((epoch, steps))
            if steps % every == 0:
                worker.save(**kept, steps=steps)
            if steps == die:
                raise Killed
        schedule.step()
        if epoch == 1:
            worker.save(**kept, steps=steps)
    last = {**model.state_dict(), **{f"average.{name}": one for name, one in average.state_dict().items()}}
    return {"last": last, "seen": seen, "lr": optimizer.param_groups[0]["lr"], "drawn": torch.rand(3)}


def drafts(folder: Path, recorder: Recorder) -> DirectoryDrafts:
    return DirectoryDrafts(Checkpoints(folder), recorder, 3, keep_best=False)


def attempt(
    group: Any, folder: Path, loader: Callable[[], DataLoader[Any]], strategy: dict[str, Any], every: int, die: int = -1
) -> Any:
    """One attempt of a run, without its processes: (what its loop returned or None, its recorder)."""
    script = Script(program="mine.py", strategy={"workers": group.size, **strategy})
    recorder, pulse = Recorder(group.rank), SimpleNamespace(asked_to_end=False)
    worker = worker_in(script, group, recorder, pulse, drafts(folder, recorder))
    try:
        return loop(worker, loader(), every, die), recorder
    except Killed:
        return None, recorder
    finally:
        worker.close()


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize(("every", "die"), [(3, 7), (4, 5), (4, 8), (100, 10)])
def test_a_resumed_loop_ends_as_an_uninterrupted_one_bit_for_bit(tmp_path, kind, every, die):
    whole, _ = attempt(alone(), tmp_path / "whole", LOADERS[kind], {}, every)
    dead, _ = attempt(alone(), tmp_path / "cut", LOADERS[kind], {}, every, die)
    assert dead is None
    resumed, recorder = attempt(alone(), tmp_path / "cut", LOADERS[kind], {}, every)
    saved_at = 8 if die > 8 else die // every * every
    assert resumed["seen"] == whole["seen"][saved_at:]
    assert recorder.step == 12
    assert resumed["lr"] == whole["lr"]
    torch.testing.assert_close([*resumed["last"].values()], [*whole["last"].values()], rtol=0, atol=0)
    torch.testing.assert_close(resumed["drawn"], whole["drawn"], rtol=0, atol=0)


def endless(worker: Worker, steps: int, die: int = -1) -> tuple[list[int], dict[str, Any]]:
    """A loop without epochs, over 5 batches of 6 numbers each; saves after each third step."""
    torch.manual_seed(3)
    model = nn.Linear(1, 2)
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    seen: list[int] = worker.restore(model=model, optimizer=optimizer, seen=[])["seen"]
    loader = DataLoader(TensorDataset(torch.arange(30)), batch_size=6, shuffle=True)
    batches = (batch for _ in worker.epochs(1000000) for batch in worker.feed(loader))
    while len(seen) < 6 * steps:
        (numbers,) = next(batches)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(numbers[:, None] / 30), numbers % 2).backward()
        optimizer.step()
        seen += numbers.tolist()
        if len(seen) % 18 == 0:
            worker.save(model=model, optimizer=optimizer, seen=seen)
        if len(seen) == 6 * die:
            raise Killed
    return seen, model.state_dict()


@pytest.mark.parametrize("die", [4, 8, 14])
def test_a_loop_without_epochs_resumes_at_its_batch_bit_for_bit(tmp_path, die):
    whole, state = endless(begun(tmp_path / "whole"), 17)
    with pytest.raises(Killed):
        endless(begun(tmp_path / "cut"), 17, die)
    seen, resumed = endless(begun(tmp_path / "cut"), 17)
    assert seen == whole
    torch.testing.assert_close(resumed, state, rtol=0, atol=0)


def test_a_loop_that_may_save_is_told_at_its_first_batch_to_count_epochs(tmp_path):
    recorder, told = Recorder(0), []
    worker = worker_in(Script(program="mine.py"), alone(), recorder, None, drafts(tmp_path / "it", recorder))
    model = worker.distribute(nn.Linear(1, 1))
    worker.restore(model=model)
    for _ in worker.feed(TensorDataset(torch.arange(4)), batch_size=2):
        told.append([one["data"]["text"] for one in recorder.events if one.get("event") == "warning"])
        with pytest.raises(BadInput, match=r"accepted: `for epoch in worker.epochs\(n\)` around them, or in a loop wi"):
            worker.save(model=model)
    worker.close()
    assert told[0] == told[1]
    assert told[0][0].startswith(
        "the loop has called worker.restore, and takes batches outside of worker.epochs: worker"
    )


LOCAL = {"consistency": {"name": "local", "period": 2, "outer": {"name": "sgd", "lr": 0.7, "momentum": 0.9}}}
GOSSIP = {"consistency": "gossip", "exchange": {"name": "allreduce", "behind": True}}


def in_two_lives(rank: int, world_size: int) -> Any:
    found, loader = [], LOADERS["shuffled"]
    for number, (strategy, every) in enumerate([({"codec": "onebit"}, 3), (LOCAL, 4), (GOSSIP, 4)]):
        whole, _ = attempt(joined(3 * number), Path(f"../whole-{number}"), loader, strategy, every)
        attempt(joined(3 * number + 1), Path(f"../cut-{number}"), loader, strategy, every, die=7)
        resumed, _ = attempt(joined(3 * number + 2), Path(f"../cut-{number}"), loader, strategy, every)
        found.append((whole, resumed))
    try:
        attempt(joined(9), Path("../within"), loader, LOCAL, 3)
    except SettingError as error:
        return found, str(error)


def test_two_ranks_resume_with_what_is_each_ones_own_bit_for_bit(workers):
    for rank, (found, refused) in enumerate(workers(2, in_two_lives)):
        for (whole, resumed), saved_at in zip(found, (6, 4, 4), strict=True):
            assert resumed["seen"] == whole["seen"][saved_at:]
            for name, value in whole["last"].items():
                if saved_at == 6 or rank == 0 or not name.startswith("average."):  # of plain modules rank 0's are kept
                    torch.testing.assert_close(resumed["last"][name], value, rtol=0, atol=0)
        assert refused.startswith("worker.save was called 1 steps after replicas were equal last; accepted under local")


def scales(rank: int, world_size: int) -> float:
    """This worker's loss scale in a second attempt, if in the first no worker had another one's."""
    for number, scale in enumerate([2.0 ** (10 + rank), 1.0]):
        script = Script(program="mine.py", strategy={"workers": world_size, **LOCAL})
        recorder, pulse = Recorder(rank), SimpleNamespace(asked_to_end=False)
        worker = worker_in(script, joined(number), recorder, pulse, drafts(Path("../scales"), recorder))
        model, scaler = worker.distribute(nn.Linear(4, 2)), torch.amp.GradScaler("cpu", init_scale=scale)
        worker.restore(model=model, scaler=scaler)
        worker.save(model=model, scaler=scaler)
        worker.close()
    return scaler.get_scale()


def test_where_workers_update_by_themselves_each_one_s_gradient_scaler_is_kept(workers):
    assert workers(2, scales) == [1024.0, 2048.0]


def counting(worker: Worker, save_at: int, die: int) -> dict[str, Any]:
    """Three epochs of 23 numbered samples, 4 a step; saves once among the batches. What it learnt from, by epoch."""
    torch.manual_seed(3)
    model = nn.Linear(4, 2).double()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    inputs = torch.linspace(-1, 1, 92, dtype=torch.float64).sin().reshape(23, 4)
    loader = DataLoader(TensorDataset(torch.arange(23), inputs), batch_size=4, shuffle=True)
    steps = worker.restore(model=model, optimizer=optimizer, steps=0)["steps"]
    seen: list[list[int]] = [[], [], []]
    for epoch in worker.epochs(3):
        for numbers, batch in worker.feed(loader):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batch), numbers % 2).backward()
            optimizer.step()
            steps += 1
            if steps <= save_at or die < 0:
                seen[epoch] += numbers[: worker._loop._share.samples].tolist()
            if steps == save_at:
                worker.save(model=model, optimizer=optimizer, steps=steps)
            if steps == die:
                return {"seen": seen}
    return {"seen": seen, "steps": steps, "last": model.state_dict()}


def counted(group: Any, folder: Path, save_at: int, die: int = -1) -> dict[str, Any]:
    script = Script(program="mine.py", strategy={"workers": group.size})
    recorder, pulse = Recorder(group.rank), SimpleNamespace(asked_to_end=False)
    worker = worker_in(script, group, recorder, pulse, drafts(folder, recorder))
    try:
        return counting(worker, save_at, die)
    finally:
        worker.close()


def counted_together(rank: int, world_size: int, folder: str, save_at: int, die: int) -> dict[str, Any]:
    return counted(joined(), Path(folder), save_at, die)


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), pytest.param(2, 3, marks=pytest.mark.slow)])
def test_a_loop_resumes_with_another_number_of_workers_at_that_batch_and_no_sample_is_lost_or_doubled(
    workers, tmp_path, before, after
):
    def attempt(count: int, folder: str, save_at: int, die: int) -> list[dict[str, Any]]:
        there = tmp_path / folder
        if count == 1:
            return [counted(alone(), there, save_at, die)]
        return workers(count, counted_together, str(there), save_at, die)

    (whole,) = attempt(1, "whole", 8, -1)  # among the batches of the second epoch
    first = attempt(before, "cut", 8, 10)
    second = attempt(after, "cut", -1, -1)
    for epoch in range(3):
        assert sorted(number for one in [*first, *second] for number in one["seen"][epoch]) == list(range(23))
    for one in second:
        assert one["steps"] == whole["steps"] == 18
        for name, value in whole["last"].items():
            torch.testing.assert_close(one["last"][name], value, rtol=0, atol=1e-12)


def test_an_epoch_that_a_sampler_has_divided_among_others_is_refused_when_it_is_resumed(tmp_path):
    sampler = DistributedSampler(Noisy(), 1, 0)
    worker = begun(tmp_path)
    feed = worker.feed(DataLoader(Noisy(), batch_size=8, sampler=sampler))
    place = {"epoch": 0, "given": 2, "began": None, "own": [], "loops": 0}
    with pytest.raises(
        BadInput, match=r"divides an epoch among 1 workers, and .* divided among 2; accepted: 2 workers,"
    ):
        feed.resume(place, None, 2)
    feed.resume(place, None, 1)


def test_a_resumed_loop_may_have_other_settings_but_not_another_order_of_samples():
    before = Script(function="mine.py:train", strategy={"workers": 2})
    after = Script(function="mine.py:train", strategy={"workers": 4, "bucket_mb": 5}, early_update=True, seed=2)
    with pytest.raises(SettingError, match=r"seed is 2, and a program seeds its generators itself; accepted: "):
        Script(program="mine.py", seed=2)
    found = changes(before, after)
    assert [change.setting for change in found] == ["strategy.workers", "strategy.bucket_mb", "seed", "early_update"]
    with pytest.raises(
        SessionError, match=r"seed: cannot change when a run is resumed: it decides the order"
    ) as raised:
        refuse(found, has_checkpoint=True, fixed=FIXED_OF_LOOP)
    assert "bucket_mb" not in str(raised.value)


def begun(folder: Path | None) -> Worker:
    recorder, pulse = Recorder(0), SimpleNamespace(asked_to_end=False)
    kept = None if folder is None else drafts(folder, recorder)
    return worker_in(Script(program="mine.py"), alone(), recorder, pulse, kept)


def test_names_that_differ_are_told_where_they_are_given(tmp_path):
    worker = begun(tmp_path)
    with pytest.raises(BadInput, match=r"worker.save was given best, and worker.restore was not called; accepted: the"):
        worker.save(best=1.0)
    worker.restore(best=0.0)
    with pytest.raises(BadInput, match=r"worker.save was given other, and worker.restore was given best; accepted"):
        worker.save(other=1.0)
    with pytest.raises(BadInput, match=r"worker.save: best\['net'\] is a Linear; accepted: what has state_dict\(\)"):
        worker.save(best={"net": nn.Linear(1, 1)})
    worker.save(best={"loss": 0.5, "at": (1, "a")})
    worker.finish()
    again = begun(tmp_path)
    with pytest.raises(
        BadInput, match=r"the run resumes from step 0: call worker.restore\(best=...\) before worker.ep"
    ):
        list(again.epochs(2))
    with pytest.raises(BadInput, match=r"worker.restore was given more, and the checkpoint of step 0 holds best"):
        again.restore(more=1)
    assert again.restore(best=None) == {"best": {"loss": 0.5, "at": (1, "a")}}
    with pytest.raises(BadInput, match=r"among the batches of worker.feed, and nothing says in which epoch; accepted"):
        for _ in again.feed(DataLoader(Noisy(), batch_size=8)):
            again.save(best=1)


def test_a_world_of_one_that_nobody_asked_for_a_run_keeps_nothing_and_says_so_once(capsys):
    worker = begun(None)
    worker.restore(best=0.0)
    for _ in worker.epochs(2):
        worker.save(best=1.0)
    assert capsys.readouterr().err == "worker.save keeps nothing, as no run was asked for: volary launch makes one\n"
    assert list(Path().iterdir()) == []


def test_a_network_that_is_saved_as_model_is_exported_and_evaluated_where_it_is_named(capsys):
    Path("net.py").write_text(
        "from torch import nn\n\n\ndef Net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))\n"
    )
    script = Script(program="mine.py", network="net.py:Net")
    assert script.network == f"{Path('net.py').resolve()}:Net"
    directory = RunDirectory.create(Path("runs"), "own", "", script.to_yaml())
    worker, network = begun(directory.checkpoints), nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    worker.restore(model=network)
    with pytest.raises(BadInput, match=r"result.module: .*runs/own has no checkpoint"):
        _ = Result.of("own").module
    worker.save(model=network)
    worker.finish()
    module = Result.of("own").module
    assert not module.training
    torch.testing.assert_close(dict(module.state_dict()), dict(network.state_dict()), rtol=0, atol=0)
    assert run(["evaluate", "own"]) == 2
    assert "whose data and loss are in its code; accepted: data.source=... as in a session" in capsys.readouterr().err
    assert run(["evaluate", "own", "data.source=digits"]) == 0
    assert 0 <= float(capsys.readouterr().out.split("accuracy")[1].split()[0]) <= 1
    Path("other.py").write_text(Path("net.py").read_text().replace("nn.Flatten()", "nn.Flatten(0)"))
    assert run(["evaluate", "own", "data.source=digits", "network=other.py:Net"]) == 2
    assert "the network cannot be measured on this data: RuntimeError: " in capsys.readouterr().err
    with pytest.raises(SettingError, match=r"network is 'Net'; accepted: 'package.module:name' or 'path/file.py:name'"):
        Script(program="mine.py", network="Net")
    assert run(["launch", "network=no.py:Net", "net.py"]) == 2
    assert "no.py: no such file" in capsys.readouterr().err


def test_a_network_that_is_saved_as_model_is_exported_and_what_is_missing_to_evaluate_it_is_said(capsys):
    script = Script(program="mine.py")
    directory = RunDirectory.create(Path("runs"), "own", "", script.to_yaml())
    worker, network = begun(directory.checkpoints), nn.Linear(2, 1)
    worker.restore(model=network)
    assert run(["export", "own"]) == 2
    worker.save(model=network)
    worker.finish()
    assert run(["export", "own"]) == 0
    with safe_open("own-step-0.safetensors", "pt") as file:
        assert file.metadata()["loop"] == "mine.py"
        torch.testing.assert_close(file.get_tensor("weight"), network.weight.detach())
    capsys.readouterr()
    assert run(["evaluate", "own"]) == 2
    assert "accepted: network=..., data.source=... as in a session" in capsys.readouterr().err
    with pytest.raises(
        BadInput, match=r"result.module: no network is named; accepted: network=path/file.py:Net, which"
    ):
        _ = Result.of("own").module


PROGRAM = """\
import os
import time
from pathlib import Path
import torch
import volary

worker = volary.init()
torch.manual_seed(1 + worker.rank)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 2))
model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
points = torch.linspace(0, 1, 400).reshape(100, 4)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(points, torch.arange(100) % 2), 8, shuffle=True)
worker.restore(model=model, optimizer=optimizer)
for epoch in worker.epochs(3):
    for step, (inputs, labels) in enumerate(worker.feed(loader)):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        if step % 5 == 2:
            worker.save(model=model, optimizer=optimizer)
        while epoch == 1 and step == 9 and Path("wait").exists():
            time.sleep(0.02)
if worker.rank == 0:
    torch.save(model.state_dict(), os.environ["LAST"])
"""


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """A store's URL."""
    with s3_server():
        yield "s3://bucket/kept"


@pytest.mark.slow  # the same without processes is above; this is the way of `volary launch` and `volary resume`
@pytest.mark.parametrize(
    ("elsewhere", "exchange"),
    [(None, "allreduce"), ("large/disk", "allreduce"), ("store", "allreduce"), (None, "server")],
)
def test_a_killed_program_is_resumed_by_the_command_from_wherever_it_saves(monkeypatch, store, elsewhere, exchange):
    Path("mine.py").write_text(PROGRAM)
    where = store if elsewhere == "store" else elsewhere
    kept = [] if where is None else [f"checkpoint.path={where}", "checkpoint.keep_last=2"]
    launch = (*VOLARY, "launch", "strategy.workers=2", f"strategy.exchange={exchange}", *kept, "run.name=it", "mine.py")
    Path("wait").touch()
    monkeypatch.setenv("LAST", "resumed.pt")
    with running(*launch) as run:
        run.wait_for_step(22)
        run.kill(1, signal.SIGKILL)
        ended = run.ended()
        assert ended.status == 4
        assert "resume from step " in ended.err
        assert ended.err.endswith(": volary resume it\n")
    Path("wait").unlink()
    other = {"allreduce": "server", "server": "allreduce"}[exchange]
    with running(*VOLARY, "resume", "it", f"strategy.exchange={other}", name="refused") as run:
        assert f"cannot be resumed; accepted: exchange={exchange}" in run.ended().err
    with running(*VOLARY, "resume", "it", "strategy.bucket_mb=5") as run:
        assert run.ended().status == 0, run.text()
    monkeypatch.setenv("LAST", "whole.pt")
    with running(*launch[:-2], "run.name=whole", "mine.py", name="whole") as run:
        assert run.ended().status == 0, run.text()
    directory = RunDirectory("runs/it")
    assert Checkpoints(directory.checkpoints).steps() == ([29, 34, 39] if where is None else [34, 39])[-3:]
    assert any(Path("runs/it/checkpoints").glob("step-*")) == (elsewhere != "store")
    whole, resumed = torch.load("whole.pt"), torch.load("resumed.pt")
    torch.testing.assert_close([*resumed.values()], [*whole.values()], rtol=0, atol=0)
    with running(*VOLARY, "resume", "whole", name="whole") as run:
        assert "runs/whole is finished, after 39 steps" in run.ended().err
    if elsewhere == "store":
        return  # what is at a path there is a copy
    damaged = Checkpoints(RunDirectory("runs/whole").checkpoints).path(39) / SHARED
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with running(*VOLARY, "resume", "whole", name="damaged") as run:
        assert run.ended().status == 0, run.text()
        assert "its last checkpoint is damaged: it resumes from step 34" in run.text()


@pytest.mark.slow  # what the roster does is in tests/server; this is that the loops take it up
def test_a_program_over_servers_whose_workers_go_each_at_its_own_pace_is_resumed_from_what_the_first_saved(monkeypatch):
    Path("mine.py").write_text(PROGRAM)
    Path("wait").touch()
    monkeypatch.setenv("LAST", "resumed.pt")
    settings = ("strategy.workers=2", "strategy.consistency=async", "strategy.exchange=server", "run.name=it")
    with running(*VOLARY, "launch", *settings, "mine.py") as run:
        run.wait_for_step(22)
        run.kill(1, signal.SIGKILL)
        run.kill(0, signal.SIGKILL)
        ended = run.ended()
        assert ended.status == 4
        assert "resume from step " in ended.err
    (*_, saved) = Checkpoints(RunDirectory("runs/it").checkpoints).steps()
    Path("wait").unlink()
    with running(*VOLARY, "resume", "it") as run:
        assert run.ended().status == 0, run.text()
        assert f"step {saved}" in run.text()
    assert Checkpoints(RunDirectory("runs/it").checkpoints).steps()[-1] >= 39
    assert all(one.isfinite().all() for one in torch.load("resumed.pt").values())
