"""Who may join a run: places are given above those there are, and a run that cannot be joined says why."""

from __future__ import annotations

import pytest

from volary.comm.control.errors import BadMessage
from volary.comm.control.service import CLOSE
from volary.driver.servers.joining import JoinService
from volary.driver.watching.failure_detector import FailureDetector, Rules, WorkerBeat
from volary.run.verdict import Verdict


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


def comes_and_goes(watch: FailureDetector, at_s: int, stays_s: int, how: str = "is lost", host: str = "b") -> None:
    """A worker of a host joins at this second and is gone some seconds later."""
    until(watch, at_s)
    rank = watch.expect(spare=True)
    watch.joined(peer=100 + rank, rank=rank, pid=9, host=host)
    until(watch, at_s + stays_s)
    if how == "is lost":
        watch.fell(rank, "was killed by SIGKILL")
    else:
        bye = Verdict(rank=rank, outcome="left", step=3)
        beat = WorkerBeat(3, "idle", 1, bye=bye, number=1, leaving=how == "leaves by itself")
        watch.on_beat(100 + rank, beat)
    watch.dismiss(rank)


def until(watch: FailureDetector, second: int) -> None:
    for tenth in range(int(watch._clock * 10), second * 10 + 1):
        watch.tick(tenth / 10)


@pytest.mark.parametrize("how", ["is lost", "leaves by itself"])
def test_a_host_whose_workers_come_and_go_is_kept_out_for_a_while_by_its_name_and_others_are_not(watch, how):
    door = JoinService(watch, lambda _: "", lambda _: None)
    for at_s in (0, 10):
        comes_and_goes(watch, at_s, 4, how)
    assert watch.why_out("b") == ""
    comes_and_goes(watch, 20, 4, how)
    words = "host b is kept out for another 60 s: its last 3 workers were each gone within 30 s"
    assert list(door.opened(1, {"workers": 1, "host": "b"}, 0.0)) == [(1, {"refused": words}), (1, CLOSE)]
    assert next(iter(door.opened(2, {"workers": 1, "host": "c"}, 0.0))) == (2, {"ranks": [5]})
    until(watch, 83)
    assert "another 1 s" in watch.why_out("b")
    until(watch, 85)
    assert watch.why_out("b") == ""
    comes_and_goes(watch, 86, 1, how)
    assert "kept out" in watch.why_out("b"), "it has not stayed since"


def test_a_worker_that_stays_and_one_that_was_asked_to_leave_are_not_taken_for_coming_and_going(watch):
    for at_s in (0, 5):
        comes_and_goes(watch, at_s, 2)
    comes_and_goes(watch, 10, 31)
    comes_and_goes(watch, 50, 2)
    assert watch.why_out("b") == ""
    for at_s in (60, 65, 70):
        comes_and_goes(watch, at_s, 2, how="leaves as it was asked to", host="d")
    assert watch.why_out("d") == ""
