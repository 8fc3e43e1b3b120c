"""No room for what a run writes: training goes on and says so; what was kept stays."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults._running import events, outcome, session, state
from faults.conftest import STEPS
from volary.run.checkpoints import Checkpoints


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The folder `runs`, on a file system of 4 MiB."""
    folder = tmp_path / "runs"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "volary-test", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"needs root, to mount a small file system: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.root
@pytest.mark.slow
def test_full_disk_ends_no_training_and_is_told_and_resume_goes_on_when_there_is_room(launch, small_disk, undisturbed):
    run = launch("train", session(steps=STEPS, pace_s=0.02))
    run.wait_until(lambda: run.directory.checkpoints.exists() and Checkpoints(run.directory.checkpoints).steps())
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(4096))
    run.wait_until(lambda: "No space left" in run.text())
    assert run.process.poll() is None
    ended = run.ended()
    assert ended.status == 0, run.text()
    assert "training goes on" in ended.err + ended.out
    kept = Checkpoints(run.directory.checkpoints)
    assert kept.verify(kept.steps()[-1]).step < STEPS  # the last one that found room is whole
    ballast.unlink()
    again = launch("resume", "it")
    assert again.ended().status == 0, again.text()
    assert outcome(run.directory).continues(undisturbed)


def test_file_that_may_not_grow_ends_no_training(launch):
    # the journal and the weights are below the limit, the rest of the state is not
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))

    run = launch("train", session(steps=60, ballast=200_000), preexec_fn=limit)
    ended = run.ended()
    assert ended.status == 0, run.text()
    assert state(run.directory) == "finished"
    failed = events(run.directory, "checkpoint_failed")
    assert [event.step for event in failed] == [20, 40, 60]
    assert "File too large" in failed[0].data["reason"]
    assert "training goes on" in failed[0].data["reason"]
    assert Checkpoints(run.directory.checkpoints).steps() == []
