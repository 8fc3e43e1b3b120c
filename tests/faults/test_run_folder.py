"""Somebody removes files of the run's folder, or moves it, while the run trains."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path

import pytest

from faults._running import events, session, state
from volary.run.checkpoints import Checkpoints

REMOVED = [
    "checkpoints/",
    "environment.json",
    "key",
    "lock",
    "logs/",
    "results/",
    "run.sqlite",
    "session.yaml",
    "verdicts/",
]


@pytest.mark.parametrize("exchange", ["", pytest.param("server", marks=pytest.mark.slow)])
def test_what_is_removed_of_the_folder_while_the_run_trains_is_written_anew_and_the_run_resumed(launch, exchange):
    run = launch("train", session(pace_s=0.02, exchange=exchange))
    directory, checkpoints = run.directory, Checkpoints(run.directory.checkpoints)
    run.wait_for_checkpoint()
    words, key = directory.session.read_bytes(), directory.key()
    for path in directory.path.iterdir():
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    run.wait_until(lambda: len(names_said_to_be_removed(run.text())) == len(REMOVED))
    assert (directory.session.read_bytes(), directory.key()) == (words, key)
    assert directory.session.stat().st_mode & 0o077
    assert not (directory.path / "key").stat().st_mode & 0o077
    assert directory.is_live()
    run.wait_for_checkpoint(run.wait_for_checkpoint() + 1)
    run.process.send_signal(signal.SIGINT)
    assert run.ended().status == 130, run.text()
    assert state(directory) == "stopped"
    said = names_said_to_be_removed(
        *(event.data["text"] for event in events(directory, "warning") if "somebody removed" in event.data["text"])
    )
    assert sorted(said) == REMOVED  # each once, though the driver may look while files are still being removed
    last = checkpoints.steps()[-1]
    again = launch("resume", "it", f"train.steps={last + 5}")
    assert again.ended().status == 0, again.text()
    assert [event.data["from_step"] for event in events(directory, "resumed")] == [last]


def names_said_to_be_removed(*texts: str) -> list[str]:
    said = [found[1] for text in texts for found in re.finditer("somebody removed (.*?) while the run", text)]
    return [name for names in said for name in names.split(", ")]


@pytest.mark.slow  # what is removed comes above
def test_a_folder_that_is_moved_while_the_run_trains_gets_checkpoints_again_once_it_is_moved_back(launch):
    run = launch("train", session(pace_s=0.02))
    directory, checkpoints = run.directory, Checkpoints(run.directory.checkpoints)
    run.wait_for_checkpoint()
    away = Path("runs/away")
    directory.path.rename(away)
    run.wait_until(lambda: "moved or removed it; move it back: no checkpoint can be written until then" in run.text())
    run.wait_until(lambda: "while the run trained; move it back; training goes on" in run.text())
    before = Checkpoints(away.absolute() / "checkpoints").steps()[-1]
    away.rename(directory.path)
    run.wait_for_checkpoint(before + 1)
    run.wait_until(lambda: "is there again: checkpoints are written again" in run.text())
    run.process.send_signal(signal.SIGINT)
    assert run.ended().status == 130, run.text()
    assert state(directory) == "stopped"
    again = launch("resume", "it", f"train.steps={checkpoints.steps()[-1] + 5}")
    assert again.ended().status == 0, again.text()
