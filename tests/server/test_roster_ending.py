"""A run that is asked to end, ends or goes on later: nothing is lost, and everybody goes."""

from __future__ import annotations

from random import Random

import pytest

from server._play import FIRST_SERVER, MODELS, Play, Shelf, every
from volary.server.protocol.from_members import Ask, Computed, Done, Over
from volary.server.protocol.to_members import End, Learn, ServerWelcome


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


@pytest.mark.parametrize(("name", "model"), MODELS)
def test_an_attempt_ends_with_each_thaw_whose_state_is_saved_and_the_next_goes_on_from_there(name, model):
    shelf, random = Shelf(), Random(9)
    restored, learnt = None, every(61, 0)
    for outcome in ("thawed", "thawed", "finished"):
        play = Play(
            name,
            model=model,
            samples=61,
            shelf=shelf,
            restored=restored,
            steps=lambda per_epoch: 2 * per_epoch,
            thaws=lambda per_epoch: (3, per_epoch, 2 * per_epoch),
        )
        play.to_the_end(random)
        assert [play.heard(peer, End)[-1] for peer in (0, FIRST_SERVER)] == [End(outcome)] * 2
        assert play.heard(0, End)[-1].is_of_run
        restored, learnt = (shelf.committed[-1][0], shelf.committed[-1][2]), learnt + play.learnt()
    assert [step for step, *_ in shelf.committed] == [3, 8, 16]
    assert learnt == every(61, 2)


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


@pytest.mark.parametrize("model", [("bsp", {}), ("local", {"period": 2}), ("ssp", {"staleness": 2}), ("async", {})])
def test_own_loops_end_one_by_one_with_every_sample_of_their_epochs_learnt_and_the_last_one_ends_the_run(model):
    """Each stops where it was given samples of the third epoch, which nobody learns from."""
    random = Random(3)
    play = Play(model[0], model=model[1], workers=3, samples=61, steps=lambda _: 10**12)
    looping = set(play.workers)
    while looping:
        rank = random.choice(sorted(looping))
        play.ask(rank)
        ahead = play.tasks[rank][0] if play.tasks[rank] else None
        if isinstance(ahead, Learn) and ahead.portions and max(each.epoch for each in ahead.portions) >= 2:
            assert play.roster.outcome is None
            looping.discard(rank)
            play.tasks[rank].clear()
            play.say(rank, Over())
        else:
            play.turn(rank)
    assert play.roster.outcome == "finished"
    assert play.learnt() == every(61, 2)
    assert len(play.shelf.committed) == 1


def test_the_last_worker_whose_loop_goes_on_is_lost_and_the_run_of_own_loops_is_finished():
    play = Play("ssp", workers=2, steps=lambda _: 10**12)
    play.ask(1)
    play.turn(1)
    play.say(0, Over())
    assert play.roster.outcome is None
    play.cut_off(1)
    assert play.roster.outcome == "finished"


def test_an_update_has_the_learning_rates_of_its_newest_contribution():
    play = Play("ssp", workers=2, steps=lambda _: 10**12)
    for clock in range(2):
        play.say(0, Ask())
        learn = play.tasks[0].popleft()
        play.say(0, Computed(learn.clock, 0.0, True, rates=(0.1 / (clock + 1), 0.5)))
        play.say(0, Done(learn.clock))
    assert [closing.rates for closing in play.closings] == [(0.1, 0.5), (0.05, 0.5)]
