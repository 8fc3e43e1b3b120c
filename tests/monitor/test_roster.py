"""Who is in a run, from its events and newest steps."""

from __future__ import annotations

import pytest

from monitor._made_runs import row
from volary.monitor.tables.roster import GONE_KEPT, roster
from volary.run.database.reader import Event

INFO = {"workers": "2", "hosts": '{"0": "ant", "1": "bee"}'}


def happened(*events):
    """Events a second apart, after the start of two workers; each its kind, rank, step and data."""
    all_of_them = [("started", None, None, {"workers": 2}), *events]
    return [Event(at, 100.0 + at, 0, rank, step, kind, data) for at, (kind, rank, step, data) in enumerate(all_of_them)]


def states(*events, steps=(), starting=False):
    found = roster(INFO, happened(*events), steps, starting=starting)
    return {one.rank: one.state for one in found}


def test_each_worker_has_its_host_its_start_its_newest_step_and_its_samples_per_second():
    steps = [row(step, rank, 0.0, 0.1 * rank) for step in (8, 9) for rank in (0, 1)]
    first, second = roster(INFO, happened(), steps, starting=False)
    assert (first.rank, first.host, first.since, first.state, first.step) == (0, "ant", 100.0, "trains", 9)
    assert (second.host, second.until) == ("bee", None)
    assert (first.samples_per_s, second.samples_per_s) == (pytest.approx(320), pytest.approx(160))


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([("asked", 1, 5, {"what": "let rank 1 leave"})], {0: "trains", 1: "leaves"}),
        ([("asked", None, 5, {"what": "write a checkpoint"})], {0: "trains", 1: "trains"}),
        ([("asked", 1, 5, {}), ("left", 1, 6, {})], {0: "trains", 1: "left"}),
        ([("lost", 0, 6, {"host": "ant"})], {1: "trains", 0: "lost"}),
        ([("joined", 2, 0, {"host": "cat"})], {0: "trains", 1: "trains", 2: "joins"}),
        ([("joined", 2, 0, {}), ("recovered", 0, 9, {"joined": [2]})], {0: "trains", 1: "trains", 2: "trains"}),
        ([("spare", 2, None, {})], {0: "trains", 1: "trains", 2: "spare"}),
        ([("spare", 2, None, {}), ("recovered", 0, 9, {"spares": [2]})], {0: "trains", 1: "trains", 2: "trains"}),
        ([("suspect", 1, 5, {})], {0: "trains", 1: "suspect"}),
        # whoever was asked stays, if all others are gone
        ([("asked", 1, 5, {}), ("lost", 0, 6, {})], {1: "trains", 0: "lost"}),
        ([("lost", 0, 6, {}), ("started", None, None, {"workers": 2})], {0: "trains", 1: "trains"}),
    ],
)  # fmt: skip
def test_how_a_worker_is_follows_from_what_happened_to_it(events, expected):
    assert states(*events) == expected


def test_a_suspect_that_goes_on_trains_and_one_that_joins_does_with_its_first_step():
    joined = [("joined", 2, 0, {"host": "cat"}), ("suspect", 1, 5, {})]
    earlier = [row(6, 1, 0.0, 0.0), row(4, 2, 0.0, 0.0, ended_at=50.0)]  # of rank 2 in an attempt before
    assert states(*joined, steps=earlier) == {0: "trains", 1: "trains", 2: "joins"}
    assert states(*joined, steps=[row(5, 1, 0.0, 0.0), row(7, 2, 0.0, 0.0)]) == {0: "trains", 1: "suspect", 2: "trains"}


def test_nobody_trains_before_the_attempt_does():
    assert states(starting=True) == {0: "starts", 1: "starts"}


def test_of_many_that_came_and_went_the_newest_are_listed_after_those_that_are_here():
    news = [
        (kind, rank, 1, {"host": f"host-{rank}"}) for rank in range(2, GONE_KEPT + 5) for kind in ("joined", "left")
    ]
    found = roster(INFO, happened(*news), [], starting=False)
    assert [one.rank for one in found] == [0, 1, *range(GONE_KEPT + 4, 4, -1)]
    newest = found[2]
    assert (newest.host, newest.state, newest.step) == (f"host-{newest.rank}", "left", 1)
    assert newest.until == newest.since + 1
