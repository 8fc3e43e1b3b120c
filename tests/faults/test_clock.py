"""The machine's clock is set while a run trains: nobody is lost, and times that are shown make sense."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from faults._clock import DAY_S, jump
from faults._running import events, outcome, session
from faults.conftest import STEPS
from volary.monitor.digest import elapsed_s
from volary.run.database.reader import RunReader


@pytest.mark.slow  # waits for two whole runs
@pytest.mark.parametrize("strategy", [{}, {"consistency": "ssp", "exchange": None}])
def test_clock_that_jumps_by_days_changes_nothing_and_no_time_that_is_shown(launch, clock, undisturbed, strategy):
    began = time.time()
    run = launch("train", session(steps=STEPS, pace_s=0.02, **strategy))
    for step, ahead_s in ((20, DAY_S), (60, -3 * DAY_S), (100, 1e9)):
        run.wait_for_step(step)
        jump(clock, ahead_s)
    assert run.ended().status == 0, run.text()
    assert [event for kind in ("suspect", "lost", "reconnected") for event in events(run.directory, kind)] == []
    if not strategy:
        assert outcome(run.directory) == undisturbed
    with RunReader(run.directory) as reader:
        took_s = elapsed_s(reader, reader.info(), reader.state(), time.time())
        times = [[row.ended_at for row in reader.steps(rank=rank)] for rank in (0, 1)]
        times.append([event.at for event in reader.events()])
    ended = time.time()
    assert took_s is not None and 0 < took_s < ended - began + 1
    for each in times:
        assert all(before <= after for before, after in pairwise(each)), "time went back"
        assert began - 1 < each[0] and each[-1] < ended + 1
