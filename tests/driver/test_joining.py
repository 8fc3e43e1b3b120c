"""Who may join a run: places are given above those there are, and a run that cannot be joined says why."""

from __future__ import annotations

import pytest

from volary.comm.control.errors import BadMessage
from volary.comm.control.service import CLOSE
from volary.driver.servers.joining import JoinService
from volary.driver.watching.failure_detector import FailureDetector, Rules


@pytest.fixture
def watch() -> FailureDetector:
    return FailureDetector(2, Rules(5, 10, 120), now=0.0)


def test_places_are_those_above_all_that_were_given_before(watch):
    expected: list[int] = []
    door = JoinService(watch, lambda _: "", expected.append)
    assert list(door.opened(1, {"workers": 2}, 0.0)) == [(1, {"ranks": [2, 3]}), (1, CLOSE)]
    assert list(door.opened(2, {"workers": 1}, 0.0)) == [(2, {"ranks": [4]}), (2, CLOSE)]
    assert expected == [2, 3, 4]
    assert watch.joined(peer=3, rank=4, pid=44, host="h")


def test_run_that_cannot_be_joined_says_why(watch):
    expected: list[int] = []
    door = JoinService(watch, lambda _: "it is ending", expected.append)
    assert list(door.opened(1, {"workers": 1}, 0.0)) == [(1, {"refused": "it is ending"}), (1, CLOSE)]
    assert expected == []
    assert set(watch.workers) == {0, 1}


@pytest.mark.parametrize("hello", [{}, {"workers": 0}, {"workers": "two"}, {"workers": 10**9}, {"rank": 0}], ids=str)
def test_wish_that_makes_no_sense_is_refused(watch, hello):
    with pytest.raises(BadMessage):
        list(JoinService(watch, lambda _: "", lambda rank: None).opened(1, hello, 0.0))


def test_place_that_nobody_takes_is_missed_as_long_after_it_was_given_as_one_of_the_first(watch):
    for rank in (0, 1):
        watch.joined(peer=rank, rank=rank, pid=40 + rank, host="h")
    for tenth in range(1000):
        watch.tick(tenth / 10)
        for rank in (0, 1):
            watch.worker_at(rank).last_beat_at = watch._watched_s
    watch.expect()
    tenth, missed = 1000, []
    while not missed:
        tenth += 1
        watch.tick(tenth / 10)
        for rank in (0, 1):
            watch.worker_at(rank).last_beat_at = watch._watched_s
            watch.worker_at(rank).moved_at = watch._watched_s
        missed = [lost for lost in watch.lost if lost.rank == 2]
    assert (missed[0].kind, round(tenth / 10)) == ("missing", 220)
