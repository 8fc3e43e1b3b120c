"""The disk under a run's database is slow, or somebody holds it: training goes on, and what was lost is said."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from faults._running import events, last_step, session, state
from faults.conftest import STEPS
from volary.run.checkpoints import Checkpoints


@pytest.mark.slow  # tests/run/test_journal.py has what becomes of the records
def test_training_goes_on_for_longer_than_workers_wait_for_the_driver_while_its_database_is_held(launch):
    run = launch("train", session(steps=STEPS + 100, pace_s=0.05, suspect_after_s=1, give_up_after_s=2.5))
    at = run.wait_for_step(5)
    with closing(sqlite3.connect(run.directory.database, isolation_level=None, timeout=60)) as other:
        other.execute("BEGIN IMMEDIATE")
        run.wait_until(lambda: Checkpoints(run.directory.checkpoints).steps()[-1:] >= [at + 100])  # 5 s at least
        other.execute("ROLLBACK")
    assert run.ended().status == 0, run.text()
    assert (state(run.directory), last_step(run.directory)) == ("finished", STEPS + 100)
    assert events(run.directory, "reconnected") == []
