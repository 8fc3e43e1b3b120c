"""When a worker concludes that it is without a driver, and when it must be gone. A state machine; its clock is ours."""

from __future__ import annotations

import pytest

from volary.train.member.driver_watch import MOST_S, DriverWatch


class Play:
    """A worker whose driver gives up after 10 s, and its clock."""

    def __init__(self, saves: bool = True) -> None:
        self.watch = DriverWatch(10, now=50.0)
        self.watch.saves = saves
        self.now = 50.0
        self.progress = self.saves = 0
        self.step_s, self.carries = 0.1, False

    def look(self, every_s: float = 0.25) -> None:
        self.now += every_s
        known = {"progress": self.progress, "step_s": self.step_s, "saves": self.saves}
        self.watch.look(self.now, **known, carries=self.carries)

    def go_on(self, seconds: float, *, moves: bool = True, carries: bool = False) -> None:
        self.carries = carries
        for _ in range(round(seconds * 4)):
            self.progress += moves
            self.look()

    def lose(self) -> None:
        self.go_on(10.5)
        assert self.watch.lost


def test_driver_that_answers_now_and_then_is_there_and_one_that_does_not_is_lost_for_good():
    play = Play()
    for _ in range(5):
        play.go_on(9.5)
        play.watch.answered()
    assert not play.watch.lost
    play.go_on(10)
    assert not play.watch.lost
    play.go_on(0.5)
    assert play.watch.lost == "the driver has not answered for 10 s: it is stopped, or cut off"
    play.watch.answered()
    play.look()
    assert play.watch.lost


def test_driver_whose_answers_queue_behind_bytes_that_this_worker_waits_for_is_lost_only_once_none_move():
    play = Play()
    play.go_on(120, moves=False, carries=True)
    assert not play.watch.lost
    play.go_on(10.5, moves=False)
    assert play.watch.lost


def test_driver_gets_no_more_time_for_bytes_that_move_while_this_worker_makes_progress():
    play = Play()
    play.go_on(10.5, carries=True)
    assert play.watch.lost


def test_driver_where_nothing_listens_any_more_is_lost_within_seconds_unless_it_answers_again():
    play = Play()
    play.watch.refused()
    play.go_on(0.75)
    play.watch.refused()
    play.watch.answered()
    play.go_on(5)
    assert not play.watch.lost
    play.watch.refused()
    play.go_on(1.25)
    assert play.watch.lost == "the driver has ended: nothing listens any more where it did"


def test_worker_that_was_stopped_itself_does_not_take_its_driver_for_lost():
    play = Play()
    play.look(every_s=3600)
    assert not play.watch.lost


def test_worker_without_a_driver_may_go_on_as_long_as_it_gets_on_with_its_last_step():
    play = Play()
    play.lose()
    play.go_on(300)
    assert not play.watch.overdue
    play.go_on(4.5, moves=False)
    assert play.watch.overdue


@pytest.mark.parametrize(("step_s", "bound_s"), [(0.1, 4), (5, 15)])
def test_standstill_without_a_driver_is_overdue_after_seconds_or_some_times_a_step(step_s, bound_s):
    play = Play()
    play.step_s = step_s
    play.lose()
    play.go_on(bound_s - 0.25, moves=False)
    assert not play.watch.overdue
    play.go_on(0.75, moves=False)
    assert play.watch.overdue


def test_checkpoint_that_was_begun_without_a_driver_may_take_as_long_as_disks_take_and_not_for_ever():
    play = Play()
    play.saves = 3  # of before
    play.lose()
    play.saves += 1
    play.go_on(MOST_S - 1, moves=False)
    assert not play.watch.overdue
    play.go_on(2, moves=False)
    assert play.watch.overdue


def test_worker_that_keeps_no_checkpoints_has_a_few_seconds_whatever_it_does():
    play = Play(saves=False)
    play.lose()
    play.go_on(4.5)
    assert play.watch.overdue


def test_driver_whose_place_another_one_may_take_is_lost_only_once_none_has_come_for_that_long():
    play = Play()
    play.watch.wait_s = 60
    play.go_on(10.5)
    assert play.watch.missing and not play.watch.lost
    play.go_on(55)
    play.watch.answered()  # another one
    play.go_on(9)
    assert not play.watch.missing
    play.go_on(1.5)
    play.go_on(59)
    assert play.watch.missing and not play.watch.lost
    play.go_on(1)
    assert play.watch.lost == (
        "the driver has not answered for 10 s: it is stopped, or cut off; no other one has come for 60 s"
    )
