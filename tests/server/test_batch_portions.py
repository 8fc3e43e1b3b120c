"""Batches in portions for whoever is free: each sample counts once, whoever comes, goes, is slow or answers twice."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server._play import Play, every
from volary.server.roster.batch_portions import BatchPortions
from volary.server.roster.portions import PortionPlan, RemainingSamples
from volary.sharding.epochs import Epochs


def of_closing(play: Play, number: int) -> Counter[tuple[int, int]]:
    """The samples that an update is of."""
    closing = play.closings[number]
    portions = [portion for one in closing.contributions for portion in play.portions[one]]
    return Counter((one.epoch, sample) for one in portions for sample in range(one.start, one.end))


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), workers=st.integers(1, 4), pieces=st.integers(1, 7), batch=st.integers(3, 20))
def test_every_update_is_of_a_whole_batch_and_each_sample_counts_once(seed, workers, pieces, batch):
    random = Random(seed)
    play = Play(
        "portions", workers=workers, samples=20, model={"count": pieces}, batch_size=batch, steps=lambda n: 2 * n
    )
    joins, leaves = random.randint(0, 2), random.randint(0, workers - 1)
    for turn in range(2000):
        if play.roster.outcome:
            break
        if random.random() < 0.2:
            play.tick(random.random())
        if turn > 3 and leaves and random.random() < 0.05 and len(play.workers) > 1:
            leaves -= 1
            play.cut_off(random.choice(play.workers))
        if joins and random.random() < 0.05:
            joins -= 1
            play.join(10 + joins)
        rank = random.choice(play.workers)
        play.ask(rank)
        if random.random() < 0.6:
            play.turn(rank)
    assert play.roster.outcome == "finished"
    assert play.learnt() == every(20, 2)
    epochs = Epochs(20, batch)
    for number in range(len(play.closings)):
        (epoch, first), *_ = sorted(of_closing(play, number))
        assert of_closing(play, number) == Counter((epoch, sample) for sample in epochs.batch_at(first))
    for closing in play.closings:  # in the order of the samples: the same sum whoever did what
        starts = [play.portions[one][0].start for one in closing.contributions]
        assert all(a < b for a, b in pairwise(starts))


def in_slow_motion(**model: object) -> Play:
    """Two workers, of which the first has taken the last portion of a batch, for long."""
    play = Play("portions", workers=2, samples=16, model={"count": 4, **model}, batch_size=8, steps=lambda n: n)
    for _ in range(3):
        play.ask(1)
        play.tick(0.1)
        play.turn(1)
    play.ask(0)
    play.ask(1)
    return play


def test_an_idle_worker_computes_the_slowest_portion_too_and_the_first_answer_counts():
    play = in_slow_motion()
    assert not play.tasks[1]
    play.tick(1.0)
    (copy,), (slow,) = play.tasks[1], play.tasks[0]
    assert copy.portions == slow.portions
    play.turn(1)
    assert of_closing(play, 0) == Counter((0, sample) for sample in range(8))
    assert [(one.worker, one.clock) for one in play.dropped()] == [(0, slow.clock)]
    play.turn(0)  # which comes too late, and counts no more
    play.to_the_end()
    assert play.learnt() == every(16, 1)


def test_the_slow_one_counts_if_it_answers_first():
    play = in_slow_motion()
    play.tick(1.0)
    (copy,) = play.tasks[1]
    play.turn(0)
    assert [(one.worker, one.clock) for one in play.dropped()] == [(1, copy.clock)]
    play.to_the_end()
    assert play.learnt() == every(16, 1)


def test_without_copies_everybody_waits_for_the_slowest():
    play = in_slow_motion(copies=False)
    play.tick(100.0)
    assert not play.tasks[1]
    play.turn(0)
    assert len(play.closings) == 1


def test_a_portion_that_is_not_unusually_slow_is_not_computed_twice():
    play = in_slow_motion()
    play.tick(0.04)
    assert not play.tasks[1]


def test_what_a_lost_worker_was_computing_is_computed_by_another_one():
    play = Play("portions", workers=2, samples=8, model={"count": 2}, batch_size=8, steps=lambda n: n)
    play.ask(0)
    (lost,) = play.tasks[0]
    play.ask(1)
    play.turn(1)
    play.cut_off(0)
    play.ask(1)
    (again,) = play.tasks[1]
    assert again.portions == lost.portions
    play.to_the_end()
    assert play.learnt() == every(8, 1)


def test_a_run_that_is_to_stop_ends_with_a_whole_batch():
    play = Play("portions", workers=2, samples=16, model={"count": 4}, batch_size=8, steps=lambda n: n)
    play.ask(0)
    play.deliver(play.roster.finish(play.now))
    play.to_the_end()
    assert play.roster.outcome == "stopped"
    assert play.learnt() == Counter((0, sample) for sample in range(8))


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_checkpoint_has_the_samples_that_are_left_for_any_number_of_portions(pieces):
    plan = PortionPlan(epochs=Epochs(10, 4), limit=20)
    first = BatchPortions(plan, 2, copies=True)
    first.join(0)
    taken = [first.take(0).portion for _ in range(2)]
    first.finished(taken, 0, 1.0)
    first.used(taken)
    first.take(0)
    assert first.left() == RemainingSamples(1, [(0, 4, 10)])
    second = BatchPortions(plan, pieces, copies=True, left=first.left())
    second.join(5)
    seen: Counter[tuple[int, int]] = Counter()
    while not second.exhausted:
        portion = second.take(5).portion
        second.finished([portion], 5, 1.0)
        seen.update((portion.epoch, sample) for sample in range(portion.start, portion.end))
        if second.whole:
            second.used([one.portion for one in list(second._open.values())])
    assert seen == every(10, 2) - Counter((0, sample) for sample in range(4))
