"""The machine's clock is set while a run trains: nobody is lost, and times that are shown make sense.

Nobody may set a machine's clock in a test. So every Python process of the run begins with a module that moves what the
system says of the time of day by what is in a file: driver, workers, servers, and what they are forked from.
"""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest

from faults._running import events, outcome, session
from faults.conftest import STEPS
from volary.monitor.digest import elapsed_s
from volary.run.database.reader import RunReader

DAY_S = 86_400.0
MOVED = """\
import time
from pathlib import Path

FILE, tell, tell_ns = Path({file!r}), time.time, time.time_ns


def ahead_s():
    return float(FILE.read_text() or 0)


time.time = lambda: tell() + ahead_s()
time.time_ns = lambda: tell_ns() + round(ahead_s() * 1e9)
"""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The seconds by which the clock of every process that a test starts is ahead: a file, to be replaced whole."""
    file = Path("ahead").absolute()
    file.write_text("0")
    Path("moved").mkdir()
    Path("moved/sitecustomize.py").write_text(MOVED.format(file=str(file)))
    monkeypatch.setenv("PYTHONPATH", str(Path("moved").absolute()))
    return file


def jump(clock: Path, ahead_s: float) -> None:
    new = clock.with_name("new")
    new.write_text(str(ahead_s))
    new.replace(clock)


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
