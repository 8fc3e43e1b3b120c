"""No room for what a run writes: training goes on and says so; what was kept stays."""

from __future__ import annotations

import re
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults._disk import filled, small
from faults._running import events, outcome, session, state
from faults.conftest import STEPS
from volary.run.checkpoints import Checkpoints


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The folder `runs`, on a file system of 4 MiB."""
    with small(tmp_path / "runs") as folder:
        yield folder


@pytest.mark.root
@pytest.mark.slow
def test_full_disk_ends_no_training_but_fails_the_run_at_its_end_and_resume_goes_on_when_there_is_room(
    launch, small_disk, undisturbed
):
    run = launch("train", session(steps=STEPS, pace_s=0.02))
    run.wait_for_checkpoint()
    ballast = filled(small_disk)
    run.wait_until(lambda: "No space left" in run.text())
    assert run.process.poll() is None
    ended = run.ended()
    assert ended.status == 1, run.text()
    assert "training goes on" in ended.err + ended.out
    assert f"failed    at step {STEPS} in " in ended.out, "the database could not take it"
    *_, last, advice = ended.err.splitlines()
    assert last.startswith(f"the last checkpoint, of step {STEPS}, could not be written: {run.directory.path}/")
    assert re.search(
        r": No space left on device \(needs [1-9][\d,]* bytes; [\d,]+ are free there\); kept: step \d+$", last
    )
    assert re.fullmatch(r"resume from step \d+: volary resume it", advice)
    kept = Checkpoints(run.directory.checkpoints)
    assert kept.verify(kept.steps()[-1]).step < STEPS  # the last one that found room is whole
    ballast.unlink()
    again = launch("resume", "it")
    assert again.ended().status == 0, again.text()
    assert outcome(run.directory).continues(undisturbed)


@pytest.mark.slow  # a run of its own; disks that are full come beside it
def test_file_that_may_not_grow_ends_no_training(launch):
    # the database (with as much of it in its log as a slow disk leaves there) and the weights are below the limit,
    # the rest of the state (8,000,000 bytes) is not
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (7_000_000, 7_000_000))

    run = launch("train", session(steps=60, ballast=2_000_000), preexec_fn=limit)
    ended = run.ended()
    path = run.directory.checkpoints / ".step-00000060"
    assert ended.status == 1, run.text()
    assert ended.err.startswith(f"the last checkpoint, of step 60, could not be written: {path}/")
    first, *_, last = ended.err.splitlines()
    assert re.search(
        r": File too large \(needs [1-9][\d,]* bytes; [1-9][\d,]* are free there\); kept: none yet$", first
    )
    assert last == "begin again, as there is no checkpoint yet: volary resume it"
    assert "failed    at step 60" in ended.out
    assert state(run.directory) == "failed"
    failed = events(run.directory, "checkpoint_failed")
    assert [event.step for event in failed] == [20, 40, 60, 60, 60]
    assert "training goes on, older checkpoints stay" in failed[0].data["reason"]
    assert "it is the last one, and tried again in 1 s" in failed[2].data["reason"]
    assert Checkpoints(run.directory.checkpoints).steps() == []
    assert not list(run.directory.checkpoints.glob(".*")), "nothing half is left"


@pytest.mark.slow  # servers beside the workers: the same promise by another way
def test_servers_that_may_not_write_end_no_training_and_the_run_fails_at_its_end(launch):
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, 700_000))

    served = "{name: server, servers: 2, transport: tcp}"  # it keeps no memory in files
    run = launch("train", session(steps=40, ballast=400_000, exchange=served), preexec_fn=limit)
    ended = run.ended()
    assert ended.status == 1, run.text()
    assert re.match(r"the last checkpoint, of step 40, could not be written: server [01]: /", ended.err), ended.err
    assert "File too large (needs " in ended.err
    assert state(run.directory) == "failed"
    assert not list(run.directory.checkpoints.iterdir())


@pytest.mark.root
@pytest.mark.slow
def test_folder_that_has_become_read_only_ends_no_training_and_the_run_says_at_its_end_what_it_could_not_write(
    launch, small_disk
):
    run = launch("train", session(steps=STEPS, pace_s=0.02))
    run.wait_for_checkpoint()
    # lazily: what is open to be written stays so, and a mount below another one is not asked
    subprocess.run(["mount", "--bind", str(small_disk), str(small_disk)], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(small_disk)], check=True)
    try:
        ended = run.ended()
    finally:
        subprocess.run(["umount", "--lazy", str(small_disk)], check=True)
    assert ended.status == 1, run.text()
    *_, last, advice = ended.err.splitlines()
    assert last.startswith(f"the last checkpoint, of step {STEPS}, could not be written: "), ended.err
    assert "Read-only file system" in last
    assert re.fullmatch(r"resume from step \d+: volary resume it", advice)
