"""How long a run took: the same in every view, over all its restart attempts, without what was between them."""

from __future__ import annotations

import time

import pytest

from monitor._made_runs import journal, new_run
from volary.monitor.account import account
from volary.monitor.digest import Follower
from volary.monitor.tables.comparison import compared, table
from volary.monitor.tables.listing import listing
from volary.page.overview.table import row
from volary.run.database.journal import Journal
from volary.run.directory import RunDirectory

EARLIER_S = 50.0


def attempt(run: Journal, began: float, *, ended: float | None) -> None:
    """From `began` to `ended`, or still running."""
    run.start_attempt(0)
    run.note(state="running", started_at=began)
    run.event("started")
    if ended is not None:
        run.event("stopped")
        run.note(state="stopped", ended_at=ended)
    run._database.execute("UPDATE events SET at = ? WHERE life = ? AND kind = 'started'", (began, run.attempt))
    run._database.execute("UPDATE events SET at = ? WHERE life = ? AND kind = 'stopped'", (ended, run.attempt))


def views_of(directory: RunDirectory) -> dict[str, float | None]:
    (listed,) = listing(directory.path.parent, ["time"])
    return {
        "volary show": account(directory).as_dict()["elapsed_s"],
        "volary runs": listed.columns["time"],
        "volary compare": compared(directory).elapsed_s,
        "the page": row("it", directory).elapsed_s,
    }


def test_every_view_says_the_time_of_all_restart_attempts_without_the_gap_between_them():
    directory = new_run()
    with journal(directory) as run:
        attempt(run, 1000, ended=1000 + EARLIER_S)
        attempt(run, 9000, ended=9014)
    assert set(views_of(directory).values()) == {EARLIER_S + 14}
    (cell,) = (values for label, *values in table([compared(directory)]) if label == "time")
    assert cell == ["1 min 4 s"]


def test_a_run_that_goes_on_has_taken_the_time_until_now():
    directory = new_run()
    with journal(directory) as run, directory.lock():
        began = time.time() - 100
        attempt(run, 1000, ended=1000 + EARLIER_S)
        attempt(run, began, ended=None)
        found = views_of(directory)
        longest = EARLIER_S + time.time() - began
    assert all(one is not None and EARLIER_S + 100 <= one <= longest for one in found.values())


def test_what_a_start_waits_for_is_told_with_the_time_of_that_attempt():
    directory = new_run()
    with journal(directory) as run:
        attempt(run, 1000, ended=1000 + EARLIER_S)
        follower = Follower(directory, clock=lambda: 9003.0)
        assert follower.look().elapsed_s == EARLIER_S
        attempt(run, 9000, ended=None)
        with directory.lock():
            digest = follower.look()
        follower.close()
    assert (digest.attempt_s, digest.elapsed_s) == (3, EARLIER_S + 3)


def test_a_run_whose_driver_was_killed_took_the_time_until_its_last_sign():
    directory = new_run()
    with journal(directory) as run:
        attempt(run, 1000, ended=None)
        run.event("evaluated", 0, 5)
        run._database.execute("UPDATE events SET at = 1030 WHERE kind = 'evaluated'")
    assert set(views_of(directory).values()) == {30}


def test_a_run_that_never_began_took_no_time_that_is_known():
    assert set(views_of(new_run()).values()) == {None}


@pytest.mark.parametrize("ended", [None, 1200.0])
def test_the_end_of_an_earlier_attempt_does_not_end_the_newest(ended):
    directory = new_run()
    with journal(directory) as run:
        attempt(run, 1000, ended=1000 + EARLIER_S)
        attempt(run, 1100, ended=ended)
        with directory.lock():
            follower = Follower(directory, clock=lambda: 1300.0)
            digest = follower.look()
            follower.close()
    assert digest.attempt_s == (200 if ended is None else 100)
