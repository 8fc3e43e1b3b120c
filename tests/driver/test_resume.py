"""A run that is resumed with other settings: longer, with another rate, after a NaN, refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from volary.cli.command.main import run as command
from volary.driver.ending import NoWatcher
from volary.driver.resume import resume
from volary.driver.start import start
from volary.errors import BadInput, NotFinite, RunError
from volary.run.checkpoints import Checkpoints
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.session import Session
from volary.session.reading.problems import SessionError

STEPS = 4


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of four steps."""
    folder = tmp_path_factory.mktemp("trained")
    session = Session(
        network="lenet",
        data={"source": "digits", "batch_size": 16},
        optimizer={"name": "sgd", "lr": 0.01, "momentum": 0.9},
        train={"steps": STEPS},
        checkpoint={"every": "4 steps"},
        run={"name": "it", "folder": str(folder)},
    )
    return start(session, NoWatcher()).directory.path


@pytest.fixture
def directory(trained: Path) -> RunDirectory:
    shutil.copytree(trained, "runs/it")
    return RunDirectory("runs/it")


def rates(directory: RunDirectory) -> list[float]:
    with RunReader(directory) as reader:
        return [row.lr for row in reader.steps()]


def changed(directory: RunDirectory) -> list[dict[str, object]]:
    with RunReader(directory) as reader:
        return [{"step": event.step, **event.data} for event in reader.events(kind="changed")]


def state(directory: RunDirectory) -> str:
    with RunReader(directory) as reader:
        return reader.state()


@pytest.mark.slow  # docs/test_commands.py makes a run longer
def test_a_finished_run_becomes_longer_with_another_rate_and_remembers_both(directory, capfd):
    ended = resume(directory, NoWatcher(), ["train.steps=7", "optimizer.lr=0.005"])
    assert (ended.state, ended.step) == ("finished", 7)
    assert rates(directory) == [0.01] * 4 + [0.005] * 3
    assert changed(directory) == [
        {"step": 4, "setting": "optimizer.lr", "was": 0.01, "now": 0.005},
        {"step": 4, "setting": "train.steps", "was": 4, "now": 7},
    ]
    assert Session.read(directory.session).train.steps == 7
    assert command(["show", str(directory.path)]) == 0
    assert "step 4: optimizer.lr is 0.005 from here on; it was 0.01" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ([], r"is finished, after 4 steps; to train longer: volary resume it train\.epochs=N, or train\.steps=N"),
        (["optimizer.lr=0.1"], "is finished, after 4 steps; to train longer"),
        (["train.steps=4", "evaluate.patience=3"], "is finished after 4 steps, and would have 4; to train longer"),
        (["train.steps=2"], "is finished after 4 steps, and would have 2"),
        (["train.epochs=0.01"], "is finished after 4 steps, and would have 1"),
    ],
)
def test_a_finished_run_is_resumed_only_if_there_is_more_to_do(directory, overrides, sentence):
    text = directory.session.read_text()
    with pytest.raises(RunError, match=sentence):
        resume(directory, NoWatcher(), overrides)
    assert (state(directory), directory.session.read_text()) == ("finished", text)


def test_a_change_that_cannot_be_made_leaves_the_run_as_it_was(directory):
    text = directory.session.read_text()
    with pytest.raises(SessionError, match="optimizer: cannot change"):
        resume(directory, NoWatcher(), ["train.steps=7", "optimizer=adam"])
    assert (state(directory), directory.session.read_text(), changed(directory)) == ("finished", text, [])


@pytest.mark.slow  # three lives, each of which imports torch
def test_a_run_that_diverged_is_resumed_with_a_lower_rate(directory):
    with pytest.raises(NotFinite) as failed:
        resume(directory, NoWatcher(), ["train.steps=8", "optimizer.lr=1e30"])
    assert "or from step 4: volary resume it optimizer.lr=5e+29" in failed.value.report
    ended = resume(directory, NoWatcher(), ["optimizer.lr=0.01"])
    assert (ended.state, ended.step) == ("finished", 8)
    assert rates(directory) == [0.01] * 8


@pytest.mark.slow  # an attempt
def test_what_the_workers_refuse_is_taken_back(directory, capfd):
    text = directory.session.read_text()
    with pytest.raises(BadInput, match="checkpoint's"):
        resume(directory, NoWatcher(), ["train.steps=8", "data.source.size=32"])
    assert (state(directory), directory.session.read_text()) == ("finished", text)
    assert command(["show", str(directory.path)]) == 0
    assert "settings changed" not in capfd.readouterr().out


@pytest.mark.slow  # an attempt with a server
def test_a_finished_run_becomes_longer_with_servers_too(directory):
    ended = resume(directory, NoWatcher(), ["train.steps=8", "strategy.exchange=server"])
    assert (ended.state, ended.step) == ("finished", 8)
    ended = resume(directory, NoWatcher(), ["train.steps=10"])
    assert (ended.state, ended.step) == ("finished", 10)


@pytest.mark.slow  # a damaged one comes below
def test_a_finished_run_whose_last_checkpoint_is_gone_is_trained_to_its_end_again(directory):
    assert resume(directory, NoWatcher(), ["train.steps=7"]).step == 7
    shutil.rmtree(directory.checkpoints / "step-00000007")
    assert Checkpoints(directory.checkpoints).steps()[-1] == STEPS
    assert resume(directory, NoWatcher()).step == 7
    assert Checkpoints(directory.checkpoints).steps()[-1] == 7
    with RunReader(directory) as reader:
        said = [event.data["text"] for event in reader.events(kind="warning")]
    assert "the run had finished, but its last checkpoint, of step 7, is gone: it resumes from step 4" in said
    shutil.rmtree(directory.checkpoints)
    directory.checkpoints.mkdir()
    with pytest.raises(
        RunError, match=r"is finished, after 7 steps, and all its checkpoints are gone; to train it again"
    ):
        resume(directory, NoWatcher())


@pytest.mark.parametrize("damage", [pytest.param("a file", marks=pytest.mark.slow), "the manifest"])
def test_a_finished_run_whose_last_checkpoint_is_damaged_is_trained_to_its_end_again(directory, damage):
    assert resume(directory, NoWatcher(), ["train.steps=7"]).step == 7
    last = Checkpoints(directory.checkpoints).path(7)
    weights = (last / "model.safetensors").read_bytes()
    if damage == "a file":
        (last / "model.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    else:
        (last / "checkpoint.json").unlink()
    assert resume(directory, NoWatcher()).step == 7
    assert (last / "model.safetensors").read_bytes() == weights
    with RunReader(directory) as reader:
        said = [event.data["text"] for event in reader.events(kind="warning")]
    assert "the run had finished, but its last checkpoint is damaged: it resumes from step 4" in said


@pytest.mark.slow  # one that is damaged comes above
def test_a_finished_run_whose_checkpoints_are_all_damaged_says_so_and_begins_anew_only_if_asked(directory):
    (directory.checkpoints / "step-00000004" / "model.safetensors").unlink()
    with pytest.raises(RunError, match="none of its checkpoints is whole"):
        resume(directory, NoWatcher())
    assert state(directory) == "finished"
    assert resume(directory, NoWatcher(), anew=True).step == STEPS
    assert Checkpoints(directory.checkpoints).newest_whole()[1] == []
