"""One sequence of updates for all: who is given which samples, and what becomes of each contribution."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server._play import FIRST_SERVER, MODELS, Play, every
from volary.comm.control.errors import BadMessage
from volary.server.protocol.from_members import Again, Ask, Beat, Computed, Done, Leave
from volary.server.protocol.to_members import Close, Learn
from volary.server.protocol.updates import Contribution

ELASTIC = MODELS[1:]


# The sequence of updates


@pytest.mark.parametrize(("name", "model"), MODELS)
@pytest.mark.parametrize("seed", range(3))
def test_a_run_learns_from_every_sample_of_every_epoch_once_and_ends(name, model, seed):
    play = Play(name, model=model, workers=3, samples=37, steps=lambda per_epoch: 2 * per_epoch)
    play.to_the_end(Random(seed))
    assert play.roster.outcome == "finished"
    assert play.learnt() == every(37, 2)
    assert [closing.number for closing in play.closings] == list(range(1, len(play.closings) + 1))
    assert play.closings[-1].samples == 74
    assert play.roster.steps == 10


def test_where_workers_keep_step_each_is_told_the_samples_of_all_batches_before_its_own():
    play = Play(MODELS[0][0], model=MODELS[0][1], workers=3, samples=37, steps=lambda per_epoch: 2 * per_epoch)
    play.to_the_end(Random(1))
    told = {(task.clock, task.samples) for rank in range(3) for task in play.heard(rank, Learn)}
    assert told == set(enumerate(37 * epoch + start for epoch in range(2) for start in range(0, 37, 8)))


def test_workers_may_learn_from_a_batch_again_whether_or_not_the_next_one_is_given_out_already():
    play = Play("bsp", workers=2, samples=32)
    for rank in (0, 1, 0):  # the first asks ahead
        play.asked[rank] = 0
        play.ask(rank)
    for rank in (0, 1):
        assert play.turn(rank)
    given = play.tasks[0].popleft()
    for rank in (0, 1):
        play.say(rank, Again(1))
        assert play.tasks[rank].popleft().portions == []
        play.say(rank, Computed(1, 1.0, True, counted=4.0, carries=True))
        play.say(rank, Done(1))
    again = play.closings[1]
    assert again.contributions == (Contribution(0, 1), Contribution(1, 1))
    assert (again.scale, again.samples, play.roster.steps) == (1.0, 8, 1), "no sample counts twice"
    (moved,) = play.tasks[0]
    assert (moved.clock, moved.portions) == (2, given.portions)
    play.asked[0] = play.asked[1] = 0
    play.to_the_end()
    assert play.roster.outcome == "finished", play.roster.failure
    assert play.learnt() == every(32, 1)


@pytest.mark.parametrize("first", [0, 1])
def test_a_worker_that_learns_again_where_another_does_not_ends_the_run(first):
    play = Play("bsp", workers=2, samples=32)
    for rank in (0, 1):
        play.ask(rank)
        assert play.turn(rank)

    def go_on() -> None:
        play.ask(1)
        play.say(1, Computed(1, 1.0, True))

    steps = [lambda: play.say(0, Again(1)), go_on]
    steps[first]()
    with pytest.raises(BadMessage, match="taken more or fewer steps with a batch than other workers have"):
        steps[1 - first]()


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(ELASTIC), st.integers(0, 2**32), st.integers(1, 4))
def test_no_sample_is_lost_or_used_twice_when_workers_die_leave_and_join(how, seed, workers):
    random = Random(seed)
    play = Play(how[0], model=how[1], workers=workers, samples=45, steps=lambda per_epoch: 2 * per_epoch)
    newcomer = workers
    for _ in range(random.randrange(60)):
        rank = random.choice(play.workers)
        match random.randrange(12):
            case 0 if len(play.workers) > 1:
                play.cut_off(rank)
            case 1 if len(play.workers) > 1:
                play.say(rank, Leave())
            case 2:
                play.join(newcomer)
                newcomer += 1
            case 3 if play.tasks[rank]:  # it computes, and goes no further
                task = play.tasks[rank][0]
                if isinstance(task, Learn) and len(play.workers) > 1:
                    play.say(rank, Computed(task.clock, 1.0, True))
                    play.deliver(play.roster.lost(rank, "died", play.now))
            case _:
                play.ask(rank)
                if random.random() < 0.7:
                    play.turn(rank)
        if play.roster.outcome:
            break
    play.to_the_end(random)
    assert play.roster.outcome == "finished", play.roster.failure
    assert play.learnt() == every(45, 2)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(MODELS), st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 4))
def test_nobody_waits_for_something_to_do_that_there_is(how, seed, workers, most_ahead):
    random = Random(seed)
    play = Play(how[0], model=how[1], workers=workers, samples=45, steps=lambda per_epoch: 2 * per_epoch)
    newcomer = workers
    for _ in range(200):
        rank = random.choice(play.workers)
        match random.randrange(20):
            case 0 if how in ELASTIC and len(play.workers) > 1:
                play.cut_off(rank)
            case 1 if how in ELASTIC:
                play.join(newcomer)
                newcomer += 1
            case choice if choice < 11 and play.asked[rank] + len(play.tasks[rank]) < most_ahead:
                play.asked[rank] += 1
                play.say(rank, Ask())
            case _:
                play.turn(rank)
        if play.roster.outcome or play.roster.failure:
            break
        # everybody who waits is looked at again
        assert not [said for _, said in play.roster.tick(play.now) if isinstance(said, Learn)]


def test_all_servers_hear_the_same_updates_in_the_same_order():
    play = Play("async", servers=3, workers=3)
    play.to_the_end(Random(1))
    heard = [[said.closing for said in play.heard(FIRST_SERVER + n, Close)] for n in range(3)]
    assert heard == [play.closings] * 3


def test_an_update_stands_for_a_whole_batch_however_many_samples_came():
    play = Play("backup", model={"k": 1}, workers=2, samples=32)
    play.ask(0)
    play.turn(0)
    closing = play.closings[0]
    assert closing.contributions == (Contribution(0, 0),)
    assert closing.scale == 8 / 4


def test_the_small_last_batch_counts_as_one_step_and_its_sum_is_its_mean():
    play = Play("bsp", workers=2, samples=12)
    play.to_the_end()
    assert [closing.scale for closing in play.closings] == [1.0, 8 / 4]
    assert play.roster.steps == 2


def test_asynchronous_contributions_count_by_their_samples():
    play = Play("async", workers=2)
    play.to_the_end()
    assert {closing.scale for closing in play.closings} == {1.0}


def test_a_worker_pushes_several_portions_as_one_contribution():
    play = Play("async", model={"push_every": 2}, workers=2, samples=32)
    play.ask(0)
    (learn,) = play.heard(0, Learn)
    assert [(portion.start, portion.end) for portion in learn.portions] == [(0, 4), (8, 12)]


# What others leave, what comes late, and what is counted


def test_what_a_dead_worker_had_begun_comes_first_and_what_it_had_finished_counts():
    play = Play("ssp", workers=2, samples=64)
    play.ask(1)
    play.turn(1)
    finished = play.portions[Contribution(1, 0)]
    play.ask(1)
    begun = play.portions[Contribution(1, 1)]
    play.cut_off(1)
    assert play.said("lost")[0][0] == 1
    play.ask(0)
    assert play.heard(0, Learn)[0].portions == begun
    play.turn(0)
    assert Contribution(1, 0) in play.closings[0].contributions
    assert finished[0].start not in {part.start for one in play.heard(0, Learn) for part in one.portions}


def test_who_waits_is_given_what_a_dead_worker_leaves_at_the_end():
    play = Play("ssp", workers=2, samples=8)
    play.ask(1)
    play.ask(0)
    play.turn(0)
    play.ask(0)
    assert len(play.heard(0, Learn)) == 1
    play.cut_off(1)
    assert len(play.heard(0, Learn)) == 2
    play.to_the_end()
    assert play.learnt() == every(8, 1)


def test_a_late_contribution_is_dropped_its_worker_told_and_its_samples_learnt_by_others():
    play = Play("backup", model={"k": 1}, workers=2, samples=64)
    play.ask(1)
    slow = play.portions[Contribution(1, 0)]
    play.ask(0)
    play.turn(0)
    assert play.dropped() == {Contribution(1, 0)} == set(play.closings[0].dropped)
    play.ask(0)
    assert play.heard(0, Learn)[1].portions == slow
    play.turn(1)  # it goes on to the end, which harms nobody
    assert len(play.closings) == 1


def test_counts_of_servers_and_workers_are_handed_over():
    play = Play("backup", model={"k": 1}, workers=2, samples=64)
    play.ask(1)
    play.ask(0)
    play.turn(0)
    play.say(FIRST_SERVER, Beat(1, [(0, 2, 5)], [(1, 3)], {"1.2.3.4": 1}))
    for _ in range(11):
        play.tick()
    rows = [tuple(row) for _, data in play.said("counts") for row in data["rows"]]
    assert ("staleness", 0, 0, 2, 5) in rows
    assert ("late", 1, 0, 0, 3) in rows
    assert ("refused", -1, 0, 0, 1) in rows
    assert ("dropped", 1, -1, 0, 1) in rows
    assert ("wait", 0, -1, 4, 1) in rows


def test_samples_that_could_not_be_read_count_in_no_mean_and_end_the_run_beyond_their_share():
    play = Play("bsp", workers=2, samples=32, skip_corrupt=0.1)
    for rank in (0, 1):
        play.ask(rank)
    for rank, lost in ((0, 1), (1, 2)):
        (learn,) = play.heard(rank, Learn)
        play.say(rank, Computed(learn.clock, 1.0, True, lost))
        play.say(rank, Done(learn.clock))
    assert [closing.scale for closing in play.closings] == [8 / 5]
    assert play.roster.samples == 8, "they are done with all the same"
    assert len(play.said("warning")) == 1
    for rank in (0, 1):
        play.ask(rank)
    (_, learn) = play.heard(0, Learn)
    play.say(0, Computed(learn.clock, 1.0, True, 1))
    assert play.roster.failure == play.roster.corrupt
    assert play.roster.corrupt.startswith(
        "4 of 32 samples of the train part could not be read, more than data.skip_corrupt"
    )
