"""Who keeps what, and what follows when a server is killed, silent, out of reach or one too many."""

from __future__ import annotations

from server._play import FIRST_SERVER, Play
from volary.server.protocol.from_members import Beat, Unreachable
from volary.server.protocol.to_members import End, View


def test_everybody_is_told_who_keeps_what():
    play = Play("async", servers=3, replicas=2, workers=1)
    (view,) = play.heard(0, View)
    assert view.shards == [[0, 1], [1, 2], [2, 0]]
    assert view.addresses == {number: ("127.0.0.1", 5000 + number) for number in range(3)}
    assert play.heard(FIRST_SERVER, View) == [view]


def test_a_killed_server_is_replaced_by_its_partner_at_once():
    play = Play("async", servers=2, replicas=2, workers=1)
    play.cut_off(FIRST_SERVER)
    assert play.heard(0, View)[-1].shards == [[1], [1]]
    assert play.said("server_lost")[0][1]["server"] == 0
    assert not play.roster.failure
    play.to_the_end()
    assert play.roster.outcome == "finished"


def test_a_run_goes_on_until_two_neighbours_are_lost_as_a_lost_server_is_not_replaced():
    play = Play("async", servers=4, replicas=2, workers=1)
    for number in (0, 2):
        play.cut_off(FIRST_SERVER + number)
    assert not play.roster.failure
    play.cut_off(FIRST_SERVER + 1)
    assert play.roster.failure == "server 1 has gone, and no other server keeps its part of the parameters"


def test_without_a_partner_the_run_cannot_go_on():
    play = Play("async", servers=2, workers=1)
    play.cut_off(FIRST_SERVER + 1)
    assert play.roster.failure == "server 1 has gone, and no other server keeps its part of the parameters"
    assert play.roster.lost_server == (1, "has gone")


def test_a_loss_that_ends_the_run_is_no_warning_beside_the_sentence_that_it_ends_with():
    play = Play("async", servers=2, replicas=2, workers=1)
    play.cut_off(FIRST_SERVER)
    play.cut_off(FIRST_SERVER + 1)
    assert play.roster.failure.startswith("server 1 has gone")
    assert [data["server"] for _, data in play.said("server_lost")] == [0]


def test_a_silent_server_is_lost_within_its_bound_and_told_to_end_if_it_comes_back():
    play = Play("async", servers=2, replicas=2, workers=1, give_up_after_s=3.0)
    play.tick()

    def go_on(seconds: float) -> None:
        until = play.now + seconds
        while play.now < until:
            play.now += 0.1
            play.say(FIRST_SERVER, Beat(0))
            play.deliver(play.roster.tick(play.now))

    go_on(2.8)
    assert not play.heard(FIRST_SERVER + 1, End), "a busy machine has such pauses"
    go_on(0.4)
    assert "silent" in play.heard(FIRST_SERVER + 1, End)[0].outcome
    assert play.heard(0, View)[-1].shards == [[0], [0]]


def test_a_roster_that_was_stopped_itself_blames_no_server():
    play = Play("async", servers=1, workers=1)
    play.tick()
    play.now += 60.0
    play.deliver(play.roster.tick(play.now))
    assert not play.roster.failure


def test_a_server_that_one_worker_cannot_reach_costs_that_worker_its_place():
    play = Play("async", servers=2, replicas=2, workers=3)
    play.say(0, Unreachable(1))
    assert "cannot reach server 1" in play.heard(0, End)[0].outcome
    assert len(play.workers) == 2
    assert len(play.servers) == 2


def test_a_server_that_most_workers_cannot_reach_has_to_go():
    play = Play("async", servers=2, replicas=2, workers=1)
    play.say(0, Unreachable(1))
    assert FIRST_SERVER + 1 in play.gone
    assert play.heard(0, View)[-1].shards == [[0], [0]]


def test_a_server_too_many_is_turned_away():
    play = Play("async", servers=1, workers=1)
    play.serve(1)
    assert "no place for a server 1" in play.heard(FIRST_SERVER + 1, End)[0].outcome
