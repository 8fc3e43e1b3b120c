"""The watch: who comes, goes, falls silent and counts as lost. A plain state machine, so its clock is ours."""

from __future__ import annotations

from dataclasses import replace

import pytest

from driver._play import RULES, Play
from volary.driver.watching.failure_detector import LostWorker, WorkerBeat
from volary.driver.watching.worker_status import STARTING
from volary.run.verdict import Verdict


def test_silent_worker_is_suspected_and_then_given_up():
    play = Play()
    for _ in range(6):
        play.say(0, "forward")
        play.go_on(0.9, silent=(1,))
    assert play.suspected == [(1, "silent")]
    assert play.watch.lost == []
    play.say(0, "exchange")
    (lost,) = play.go_on(5, silent=(1,))
    assert (lost.rank, lost.kind) == (1, "silent")
    assert lost.sentence == "has been silent for 10 s: it is stopped, or its host is gone"
    assert play.asked == []  # whoever is silent cannot tell its stack


def test_worker_whose_heartbeats_queue_behind_what_others_wait_for_is_silent_only_once_nothing_moves_any_more():
    play = Play()
    play.say(0, "exchange", carries=True)
    play.say(1, "exchange")
    assert play.go_on(60, silent=(1,)) == []
    assert play.suspected == []
    play.say(0, "exchange", progress=play.beats[0].progress)
    (lost,) = play.go_on(11, silent=(1,))
    assert (lost.rank, lost.kind) == (1, "silent")


def test_worker_that_is_silent_while_others_make_progress_gets_no_more_time_for_what_these_send():
    play = Play()
    for _ in range(11):
        play.say(0, "exchange", carries=True)
        play.go_on(1, silent=(1,))
    assert [lost.rank for lost in play.watch.lost] == [1]


def test_worker_that_recovers_is_suspected_anew_the_next_time():
    play = Play()
    for _ in range(2):
        play.go_on(7, silent=(0,))
        play.say(0, "forward")
        play.say(1, "forward")
        play.go_on(1)
    assert play.suspected == [(0, "silent"), (0, "silent")]
    assert play.watch.lost == []


def test_what_a_slow_link_makes_of_a_worker_is_reported_again_only_if_it_takes_much_longer():
    play = Play(hosts="ab", rules=replace(RULES, give_up_after_s=100))
    for silent_s in (7, 13, 17, 30, 33):
        play.go_on(silent_s, silent=(1,), elsewhere=(1,))
        play.say(0, "forward")
        play.say(1, "forward")
        play.go_on(1)
    assert play.suspected == [(1, "silent")] * 2
    assert [sentence.partition(":")[0] for sentence in play.sentences] == [
        "has been silent for 5 s",
        "has been silent for 14 s",
    ]


def test_worker_that_is_silent_while_it_starts_is_given_the_time_of_a_start():
    play = Play(steps=0)
    play.say(0, "exchange", step=0)
    play.say(1, "starting", step=0)  # imports torch
    assert play.go_on(55, silent=(1,)) == []
    assert play.suspected == []
    play.go_on(10, silent=(1,))
    assert play.suspected == [(1, "silent")]
    assert play.go_on(50, silent=(1,)) == []
    (lost,) = play.go_on(6, silent=(1,))
    assert (lost.rank, lost.kind) == (1, "silent")


def test_worker_whose_interpreter_is_held_but_whose_process_works_is_slow_and_not_silent():
    play = Play()
    play.say(0, "exchange")
    play.say(1, "forward")
    assert play.go_on(50, silent=(1,), working=(1,)) == []
    assert play.suspected == [(1, "stuck")]
    assert play.sentences == [
        "has not been heard of for 10 s, but its process is at work: a long call outside of Python holds the "
        "interpreter's lock; rank 0 waits for it"
    ]
    assert play.asked == []
    play.say(1, "exchange")
    assert play.go_on(5) == []
    assert play.go_on(11, silent=(1,))[0].kind == "silent"  # now it does not work


def test_worker_that_was_last_heard_of_in_the_exchange_is_waited_for_once_it_is_not_heard_of_though_it_works():
    play = Play()
    play.say(0, "exchange")
    play.say(1, "exchange")
    (lost,) = play.go_on(61, silent=(1,), working=(1,))
    assert (lost.rank, lost.kind) == (1, "stuck")


def test_one_worker_alone_that_is_stopped_on_this_machine_is_warned_of_and_waits_for_its_user():
    play = Play(world_size=1)
    assert play.go_on(300, silent=(0,)) == []
    assert play.suspected == [(0, "silent")]
    assert play.sentences == ["has been silent for 5 s: its process is stopped"]
    elsewhere = Play(world_size=1)
    for _ in range(110):  # nobody sees its process
        elsewhere.now += 0.1
        elsewhere.watch.tick(elsewhere.now)
    assert [lost.kind for lost in elsewhere.watch.lost] == ["silent"]


def test_worker_that_is_stopped_when_all_others_have_finished_is_given_up_and_so_is_the_last_of_several():
    play = Play()
    play.say(0, "between steps", bye=Verdict(rank=0, outcome="finished", step=9))
    (lost,) = play.go_on(11, silent=(1,))
    assert (lost.rank, lost.kind) == (1, "silent")
    last = Play()
    last.watch.fell(0, "was killed by SIGKILL")
    last.watch.dismiss(0)
    assert [lost.rank for lost in last.go_on(11, silent=(1,))] == [0, 1]


@pytest.mark.parametrize("asleep_s", [1.0, 30.0, 4000.0])
def test_watch_that_was_itself_stopped_blames_nobody_and_goes_on_watching(asleep_s):
    play = Play()
    for _ in range(20):
        play.now += asleep_s  # the server ticks before it reads what came meanwhile
        play.go_on(0.1)
        play.say(0, "forward")
        play.say(1, "forward")
    assert play.suspected == []
    play.go_on(10.5, silent=(1,))
    assert play.watch.lost[0].rank == 1


def test_connection_that_ends_without_a_goodbye_is_a_death_unless_it_comes_back_and_with_one_is_none():
    play = Play()
    bye = Verdict(rank=0, outcome="finished", step=9)
    play.say(0, "between steps", bye=bye)
    play.watch.on_beat(0, WorkerBeat(9, "between steps", 99))  # a beat that was on its way changes nothing
    play.watch.left(0)
    assert play.watch.lost == []
    play.watch.left(1)
    assert play.go_on(2.9) == []
    assert not play.watch.joined(peer=6, rank=1, pid=7, host="a")  # somebody else
    assert play.watch.joined(peer=7, rank=1, pid=1001, host="a")
    assert play.go_on(2.9) == []
    play.watch.left(1)  # of the connection that was replaced
    assert play.watch.workers[1].here
    play.watch.left(7)
    assert play.go_on(3.2) == [LostWorker(1, "died", "died")]
    assert not play.watch.joined(peer=8, rank=1, pid=1001, host="a")
    assert play.watch.all_left_but(())
    assert play.watch.workers[0].goodbye == bye


def test_who_is_away_when_the_run_ends_has_died():
    play = Play()
    play.watch.left(1)
    play.watch.conclude()
    assert play.watch.lost == [LostWorker(1, "died", "died")]


def test_place_is_given_once():
    play = Play(come=1)
    assert not play.watch.joined(peer=7, rank=0, pid=5, host="there")
    assert not play.watch.joined(peer=8, rank=2, pid=5, host="there")
    assert play.watch.worker_at(7) is None
    play.watch.on_beat(7, WorkerBeat(1, "forward", 1))
    play.watch.left(7)
    assert play.watch.lost == []


def test_run_that_goes_on_without_a_silent_worker_judges_those_that_are_left_as_before():
    play = Play(world_size=3)
    for _ in range(12):
        play.say(0, "forward")
        play.say(1, "forward")
        play.go_on(0.9, silent=(2,))
    assert [lost.rank for lost in play.watch.lost] == [2]
    play.watch.dismiss(2)
    play.say(0, "exchange")
    lost = play.go_on(61, silent=(2,))
    assert [(one.rank, one.kind) for one in lost] == [(2, "silent"), (1, "stuck")]


def test_worker_that_comes_back_after_it_was_given_up_is_not_heard():
    play = Play(steps=0)
    for _ in range(12):
        play.say(0, "forward")
        play.go_on(0.9, silent=(1,))
    play.watch.dismiss(1)
    play.watch.on_beat(1, WorkerBeat(9, "forward", 9))
    assert play.watch.workers[1].step == 0
    assert not play.watch.joined(peer=5, rank=1, pid=77, host="here")


def test_worker_that_starts_and_whose_machine_answers_no_more_is_given_up_before_the_time_of_a_start_is_over():
    play = Play(steps=0)
    play.say(1, STARTING)
    assert play.go_on(11, silent=(1,)) == []
    play.watch.left(1)  # the kernel has given its connection up
    (lost,) = play.go_on(3.2, silent=(1,))
    words = "had been silent for 11 s, and then its connection ended: its host is gone or cut off, or it died"
    assert lost == LostWorker(1, "silent", words)
