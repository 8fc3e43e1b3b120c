"""Workers that come, leave, die or are turned away, and who goes on without them."""

from __future__ import annotations

import pytest

from server._play import FIRST_SERVER, Play, every
from volary.errors import SettingError
from volary.server.protocol.from_members import Leave
from volary.server.protocol.to_members import Dropped, End, Gone, Learn, View, Welcome

# Coming


def test_work_begins_once_all_workers_and_all_servers_are_here():
    play = Play("async", servers=1, workers=2, here=False)
    play.join(0)
    play.ask(0)
    assert play.roster.awaited == ["rank 1", "server 0"]
    play.serve(0)
    assert not play.heard(0, Learn)
    play.join(1)
    assert play.heard(0, Learn)


def test_work_begins_without_a_worker_that_is_given_up_before_it_comes():
    play = Play("async", servers=1, workers=2, here=False)
    play.join(0)
    play.ask(0)
    play.serve(0)
    play.deliver(play.roster.lost(1, "did not come within 120 s", 0.0))
    assert play.heard(0, Learn)


def test_a_run_that_needs_every_worker_does_not_begin_without_one():
    play = Play("bsp", servers=1, workers=2, here=False)
    play.join(0)
    play.serve(0)
    play.deliver(play.roster.lost(1, "did not come within 120 s", 0.0))
    assert "rank 1 did not come" in play.roster.failure


def test_a_model_that_cannot_be_had_with_so_many_workers_is_refused_at_once():
    with pytest.raises(SettingError, match="k is 3; accepted: 1 to 2"):
        Play("backup", model={"k": 3}, workers=2)


def test_a_worker_is_welcomed_with_the_facts_of_the_first():
    play = Play("async", workers=2)
    assert play.heard(1, Welcome) == [Welcome(1, {})]


def test_one_that_joins_is_told_who_serves_and_gets_work_of_the_same_epoch():
    play = Play("async", workers=1, samples=64)
    play.ask(0)
    play.join(1)
    play.ask(1)
    assert len(play.heard(1, View)) == 1
    assert play.heard(1, Learn)[0].portions[0].epoch == 0


def test_a_place_is_never_taken_twice():
    play = Play("async", workers=2)
    play.join(1, peer=7)
    assert play.heard(7, End) == [End("rank 1 was here before")]
    assert 7 in play.gone
    play.cut_off(1)
    play.join(1, peer=8)
    assert play.heard(8, End) == [End("rank 1 was here before")]


def test_a_worker_that_comes_when_the_run_is_over_is_told_how_it_ended():
    play = Play("async", workers=1, samples=8)
    play.unanswered = {End}
    play.to_the_end()
    play.join(1)
    assert play.heard(1, End) == [End("finished")]
    assert 1 in play.gone


def test_a_run_whose_workers_are_fixed_takes_no_others():
    play = Play("bsp", workers=2)
    play.join(2)
    assert play.heard(2, End) == [End("there is no place for a rank 2 in this run")]


def test_a_worker_with_other_data_is_turned_away():
    play = Play("async", workers=1)
    play._hello = (33, 0)
    play.join(1)
    assert "another number of samples" in play.heard(1, End)[0].outcome
    assert play.heard(1, Dropped) == []


# Going


def test_servers_forget_a_dead_worker_once_all_that_it_finished_is_in_an_update():
    play = Play("ssp", workers=2, samples=64, model={"staleness": 0})
    play.ask(1)
    play.turn(1)
    play.cut_off(1)
    assert not play.heard(FIRST_SERVER, Gone)
    play.ask(0)
    play.turn(0)
    assert play.heard(FIRST_SERVER, Gone) == [Gone(1)]


def test_a_worker_that_is_given_up_is_told_so_and_what_it_says_later_is_passed_over():
    play = Play("async", workers=2)
    play.ask(1)
    play.deliver(play.roster.lost(1, "has been silent for 10 s", 0.0))
    assert "silent" in play.heard(1, End)[0].outcome
    play.deliver(play.roster.received(1, {"kind": "done", "clock": 0}, 0.0))
    assert play.closings == []


def test_a_dead_worker_ends_a_run_that_needs_it():
    play = Play("bsp", workers=2)
    play.cut_off(1)
    assert "rank 1 has closed its connection" in play.roster.failure
    play.ask(0)
    assert not play.heard(0, Learn)


def test_a_worker_that_wants_to_leave_a_run_that_needs_it_ends_it_after_the_step():
    play = Play("bsp", workers=2, samples=64)
    play.ask(0)
    play.say(0, Leave())
    play.to_the_end()
    assert play.roster.outcome == "stopped"
    assert [closing.samples for closing in play.closings] == [8]


def test_a_worker_that_wants_to_leave_an_elastic_run_goes_alone():
    play = Play("ssp", workers=2, samples=64)
    play.ask(1)
    play.say(1, Leave())
    assert play.said("left")[0][0] == 1
    play.to_the_end()
    assert play.learnt() == every(64, 1)


def test_a_run_goes_on_for_a_worker_that_was_let_in_and_has_not_come():
    play = Play("async", workers=1, samples=64)
    play.roster.expect(1)
    play.cut_off(0)
    assert not play.roster.failure
    play.join(1)
    play.to_the_end()
    assert (play.roster.outcome, play.learnt()) == ("finished", every(64, 1))


def test_who_was_let_in_and_does_not_come_leaves_the_run_as_it_was():
    play = Play("async", workers=1, samples=64)
    for rank in (1, 2):
        play.roster.expect(rank)
    play.deliver(play.roster.lost(2, "did not come within 120 s", 0.0))
    play.cut_off(0)
    assert not play.roster.failure
    play.deliver(play.roster.lost(1, "died", 0.0))
    assert play.roster.failure == "rank 0 has closed its connection, and no worker is left"


def test_the_last_one_may_leave_and_the_run_is_stopped_once_nobody_will_come():
    play = Play("async", workers=1, samples=64)
    play.roster.expect(1)
    play.say(0, Leave())
    assert play.roster.outcome is None
    play.deliver(play.roster.left(1, 0.0))
    assert play.roster.outcome == "stopped"


def test_a_worker_that_was_let_in_is_none_that_work_waits_for():
    play = Play("ssp", workers=1, samples=64)
    play.roster.expect(1)
    play.to_the_end()
    assert (play.roster.outcome, play.learnt()) == ("finished", every(64, 1))


def test_without_any_worker_the_run_cannot_go_on():
    play = Play("async", workers=1)
    play.cut_off(0)
    assert "no worker is left" in play.roster.failure
