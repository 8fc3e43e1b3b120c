"""A run that is asked to end, ends or goes on later: nothing is lost, and everybody goes."""

from __future__ import annotations

from random import Random

import pytest

from server._play import FIRST_SERVER, MODELS, Play, Shelf, every
from volary.server.protocol.messages import End, ServerWelcome


@pytest.mark.parametrize(("name", "model"), MODELS)
def test_a_run_that_is_asked_to_end_finishes_what_has_begun_and_another_goes_on_from_there(name, model):
    shelf, random = Shelf(), Random(9)
    first = Play(name, model=model, workers=3, samples=61, shelf=shelf, steps=lambda per_epoch: 2 * per_epoch)
    for _ in range(12):
        rank = random.choice(first.workers)
        first.ask(rank)
        first.turn(rank)
    first.deliver(first.roster.finish(0.0))
    first.to_the_end(random)
    assert first.roster.outcome == "stopped"
    (step, _, state, _) = shelf.committed[-1]
    second = Play(
        name,
        model=model,
        workers=2,
        samples=61,
        shelf=shelf,
        restored=(step, state),
        steps=lambda per_epoch: 2 * per_epoch,
    )
    assert second.heard(FIRST_SERVER, ServerWelcome) == [ServerWelcome(step, len(first.closings))]
    second.to_the_end(random)
    assert second.roster.outcome == "finished"
    assert second.closings[0].number == len(first.closings) + 1
    assert first.learnt() + second.learnt() == every(61, 2)


def test_a_stopped_run_in_which_workers_keep_step_ends_between_two_whole_steps():
    play = Play("bsp", workers=3, samples=64)
    play.ask(0)
    play.turn(0)
    play.deliver(play.roster.finish(0.0))
    play.to_the_end()
    assert [closing.samples for closing in play.closings] == [8]


def test_a_run_that_is_stopped_before_anything_was_learnt_saves_nothing():
    play = Play("bsp", workers=2)
    play.deliver(play.roster.finish(0.0))
    assert play.roster.outcome == "stopped"
    assert play.shelf.committed == []


def test_a_run_that_is_stopped_before_all_are_here_ends():
    play = Play("bsp", workers=2, here=False)
    play.join(0)
    play.deliver(play.roster.finish(0.0))
    assert play.heard(0, End) == [End("stopped")]


def test_at_the_end_servers_go_after_the_workers():
    play = Play("bsp", workers=2, samples=8)
    play.unanswered = {End}
    play.to_the_end()
    assert play.heard(0, End) == [End("finished")]
    assert not play.heard(FIRST_SERVER, End)
    play.cut_off(0)
    play.cut_off(1)
    assert play.heard(FIRST_SERVER, End) == [End("finished")]
    assert play.roster.ended


def test_servers_do_not_wait_for_ever_for_workers_that_do_not_go():
    play = Play("bsp", workers=1, samples=8)
    play.unanswered = {End}
    play.to_the_end()
    for _ in range(60):
        play.tick()
    assert play.heard(FIRST_SERVER, End) == [End("finished")]
