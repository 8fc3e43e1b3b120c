"""The clock on the wall jumps, as when a machine's time is set: nobody is lost, and nothing is another."""

from __future__ import annotations

import pytest

from faults._running import events, outcome, session
from faults.conftest import STEPS


@pytest.mark.slow
def test_clock_that_jumps_by_days_changes_nothing(launch, undisturbed):
    run = launch("train", session(steps=STEPS, fault="clock", at=20))
    assert run.ended().status == 0, run.text()
    assert events(run.directory, "suspect") == []
    assert outcome(run.directory) == undisturbed
