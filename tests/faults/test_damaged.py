"""A damaged run begins nothing anew without being asked, and continues from files that are whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults._running import events, last_step, session, state
from volary.run.checkpoints import Checkpoints
from volary.run.database.reader import RunReader


@pytest.mark.slow  # trains five times; tests/run/test_broken.py has the database
def test_resume_survives_a_lost_database_and_begins_anew_only_when_it_is_asked_to(launch):
    run = launch("train", session(steps=45, pace_s=0.02))
    directory, checkpoints = run.directory, Checkpoints(run.directory.checkpoints)
    run.wait_for_checkpoint()
    run.kill(rank=1)
    assert run.ended().status == 4
    found = checkpoints.steps()
    for step in found:
        (checkpoints.path(step) / "state.pt").write_bytes(b"damaged")
    words = directory.session.rename("session.away")
    refused = launch("resume", "it").ended()
    assert refused.status == 2
    assert refused.err.startswith(f"{directory.session} cannot be read (No such file or directory); put the run's")
    Path(words).rename(directory.session)

    refused = launch("resume", "it").ended()
    assert refused.status == 2, refused.err
    assert refused.err.startswith(f"{directory.path}: none of its checkpoints is whole (")
    assert f"volary resume {directory.path} --anew" in refused.err
    assert checkpoints.steps() == found

    for left in directory.path.glob("run.sqlite*"):
        left.unlink()
    anew = launch("resume", "it", "--anew")
    ended = anew.ended()
    assert ended.status == 0, anew.text()
    assert "run.sqlite was missing: a new one begins" in ended.out
    assert state(directory) == "finished"
    with RunReader(directory) as reader:
        assert sorted({row.step for row in reader.steps()}) == list(range(1, 46))
    assert sorted(path.name for path in checkpoints.folder.glob("damaged-*")) == [
        f"damaged-step-{step:08d}" for step in found
    ]

    for left in directory.path.glob("run.sqlite*"):
        left.unlink()
    again = launch("resume", "it")
    assert again.ended().status == 0, again.text()
    assert [event.data["from_step"] for event in events(directory, "resumed")] == [45]
    assert last_step(directory) == 0, "nothing was left to do"
    refused = launch("resume", "it", "--anew").ended()
    assert refused.status == 2
