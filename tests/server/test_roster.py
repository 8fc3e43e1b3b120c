"""The roster: one sequence of updates for all, work for who asks, and a run that ends as it should."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server._play import FIRST_SERVER, Play, Shelf
from volary.comm.errors import BadMessage
from volary.errors import SettingError
from volary.server.messages import (
    Ask,
    Beat,
    Close,
    Computed,
    Contribution,
    Done,
    Dropped,
    End,
    Evaluate,
    Evaluated,
    Figure,
    Figures,
    Gone,
    Keep,
    Kept,
    Learn,
    Leave,
    Release,
    Save,
    Saved,
    ServerWelcome,
    Unreachable,
    View,
    Welcome,
)

MODELS = [("bsp", {}), ("backup", {}), ("backup", {"epoch": 0.75}), ("ssp", {}), ("ssp", {"staleness": 0})]
MODELS += [("async", {}), ("async", {"push_every": 3}), ("async", {"warm_up_samples": 20})]
ELASTIC = MODELS[1:]


def every(samples: int, epochs: int) -> Counter[tuple[int, int]]:
    return Counter((epoch, sample) for epoch in range(epochs) for sample in range(samples))


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


# Coming and going


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


def test_everybody_is_told_who_keeps_what():
    play = Play("async", servers=3, replicas=2, workers=1)
    (view,) = play.heard(0, View)
    assert view.shards == [[0, 1], [1, 2], [2, 0]]
    assert view.addresses == {number: ("127.0.0.1", 5000 + number) for number in range(3)}
    assert play.heard(FIRST_SERVER, View) == [view]


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
    play.deliver(play.roster.received(1, {"say": "done", "clock": 0}, 0.0))
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


def test_without_any_worker_the_run_cannot_go_on():
    play = Play("async", workers=1)
    play.cut_off(0)
    assert "no worker is left" in play.roster.failure


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


# Servers


def test_a_killed_server_is_replaced_by_its_partner_at_once():
    play = Play("async", servers=2, replicas=2, workers=1)
    play.cut_off(FIRST_SERVER)
    assert play.heard(0, View)[-1].shards == [[1], [1]]
    assert play.said("server_lost")[0][1]["server"] == 0
    assert not play.roster.failure
    play.to_the_end()
    assert play.roster.outcome == "finished"


def test_without_a_partner_the_run_cannot_go_on():
    play = Play("async", servers=2, workers=1)
    play.cut_off(FIRST_SERVER + 1)
    assert play.roster.failure == "server 1 has gone, and no other server keeps its part of the parameters"


def test_a_silent_server_is_lost_within_its_bound_and_told_to_end_if_it_comes_back():
    play = Play("async", servers=2, replicas=2, workers=1)
    play.tick()
    for _ in range(16):
        play.now += 0.1
        play.say(FIRST_SERVER, Beat(0))
        play.deliver(play.roster.tick(play.now))
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


# Evaluation and checkpoints


def test_a_state_is_kept_measured_in_pieces_and_judged_while_others_go_on():
    play = Play("async", workers=2, samples=64, held_back=10, evaluate_every=lambda _: 1)
    play.ask(0)
    play.turn(0)
    play.ask(1)
    play.turn(1)
    assert play.heard(FIRST_SERVER, Keep) == [Keep(1, 2)]
    play.ask(0)
    play.ask(1)
    pieces = [play.heard(rank, Evaluate)[0] for rank in (0, 1)]
    assert [(piece.start, piece.end) for piece in pieces] == [(0, 5), (5, 10)]
    play.turn(0)
    play.ask(0)
    assert len(play.heard(0, Learn)) == 2  # worker 1 still measures
    play.turn(1)
    play.ask(1)
    assert play.heard(1, Figure) == [Figure(1, [10.0], 10)]
    play.turn(1)
    (told,) = play.said("evaluated")
    assert told == (None, {"step": 1, "figures": {"accuracy": 0.0}, "metric": "accuracy", "best": True})


def test_a_piece_of_a_dead_worker_is_measured_by_another():
    play = Play("async", workers=2, samples=16, held_back=10, evaluate_every=lambda _: 1)
    play.ask(0)
    play.turn(0)
    play.ask(0)
    play.turn(0)
    play.ask(1)
    assert play.heard(1, Evaluate)
    play.cut_off(1)
    play.to_the_end()
    assert len(play.said("evaluated")) == 2


def test_one_that_dies_while_it_says_what_the_totals_mean_is_replaced():
    play = Play("async", workers=2, samples=8, held_back=1, evaluate_every=lambda _: 1)
    for rank in (0, 1):
        play.ask(rank)
        play.turn(rank)
    play.ask(0)
    play.turn(0)
    play.ask(0)
    assert play.heard(0, Figure)
    play.cut_off(0)
    play.ask(1)
    assert play.heard(1, Figure)
    play.to_the_end()
    assert len(play.said("evaluated")) == 1


def test_nothing_is_measured_before_every_server_keeps_it():
    play = Play("bsp", servers=2, workers=1, samples=8, held_back=4, evaluate_every=lambda _: 1)
    play.unanswered = {Keep}
    play.ask(0)
    play.turn(0)
    play.ask(0)
    play.say(FIRST_SERVER, Kept(1))
    assert not play.heard(0, Evaluate)
    play.say(FIRST_SERVER + 1, Kept(1))
    assert play.heard(0, Evaluate)


def test_the_state_of_a_checkpoint_is_as_of_its_update():
    shelf = Shelf()
    play = Play("async", workers=2, samples=64, checkpoint_every=lambda _: 2, shelf=shelf)
    play.to_the_end(Random(3))
    assert [step for step, *_ in shelf.committed] == [2, 4, 6, 8]
    for step, files, state, metric in shelf.committed:
        assert state["samples"] == 8 * step
        left = sum(end - start for _, start, end in state["left"]["ranges"])
        assert left + 64 * (1 - state["left"]["epoch"]) == 64 - 8 * step
        assert (files, metric) == ({"shard-0": "checksum"}, None)


def test_the_best_state_is_saved_though_no_checkpoint_was_due():
    shelf = Shelf()
    play = Play("bsp", workers=1, samples=32, held_back=4, evaluate_every=lambda _: 2, shelf=shelf)
    play.value = iter([5.0, 1.0])
    play.to_the_end()
    assert [(step, metric) for step, _, _, metric in shelf.committed] == [(2, 5.0), (4, None)]
    assert shelf.committed[-1][2]["best"] == {"value": 5.0, "step": 2, "waited": 1}


def test_each_shard_is_written_once_by_one_that_keeps_it():
    play = Play("bsp", servers=3, replicas=2, workers=1, samples=8)
    play.to_the_end()
    saves = [save for number in range(3) for save in play.heard(FIRST_SERVER + number, Save)]
    assert sorted(shard for save in saves for shard in save.shards) == [0, 1, 2]


def test_what_a_dead_server_was_to_write_its_partner_writes():
    play = Play("bsp", servers=2, replicas=2, workers=1, samples=8)
    play.unanswered = {Save}
    while not play.heard(FIRST_SERVER, Save):
        play.ask(0)
        play.turn(0)
    play.cut_off(FIRST_SERVER)
    saves = play.heard(FIRST_SERVER + 1, Save)
    assert [save.shards for save in saves] == [[1], [0]]
    play.say(FIRST_SERVER + 1, Saved(saves[0].cut, {"shard-1": "x"}))
    assert play.shelf.committed == []
    play.say(FIRST_SERVER + 1, Saved(saves[0].cut, {"shard-0": "y"}))
    assert play.shelf.committed[0][1] == {"shard-0": "y", "shard-1": "x"}


def test_a_full_disk_ends_the_save_and_not_the_run():
    shelf = Shelf()
    shelf.full = True
    play = Play("bsp", workers=1, samples=32, checkpoint_every=lambda _: 2, shelf=shelf)
    play.to_the_end()
    assert play.roster.outcome == "finished"
    assert [data["reason"] for _, data in play.said("checkpoint_failed")] == [
        "no space left on device; training goes on, older checkpoints stay"
    ] * 2


def test_every_kept_state_is_released():
    play = Play("async", workers=2, samples=64, held_back=4, evaluate_every=lambda _: 1, checkpoint_every=lambda _: 3)
    play.to_the_end(Random(5))
    kept, released = play.heard(FIRST_SERVER, Keep), play.heard(FIRST_SERVER, Release)
    assert sorted(one.cut for one in kept) == sorted(one.cut for one in released)


def test_patience_ends_the_run_early():
    play = Play("bsp", workers=1, samples=400, held_back=4, evaluate_every=lambda _: 2, patience=2)
    play.value = iter([5.0, 4.0, 3.0, 2.0, 1.0])
    play.to_the_end()
    assert play.roster.outcome == "finished"
    assert play.roster.steps < 50
    assert play.shelf.committed[-1][0] == play.roster.steps


# The end, and going on


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


def test_counts_of_servers_and_workers_are_handed_over():
    play = Play("backup", model={"k": 1}, workers=2, samples=64)
    play.ask(1)
    play.ask(0)
    play.turn(0)
    play.say(FIRST_SERVER, Beat(1, [(0, 2, 5)], [(1, 3)], {"1.2.3.4": 1}))
    for _ in range(11):
        play.tick()
    rows = [tuple(row) for _, data in play.said("tallies") for row in data["rows"]]
    assert ("staleness", 0, 0, 2, 5) in rows
    assert ("late", 1, 0, 0, 3) in rows
    assert ("refused", -1, 0, 0, 1) in rows
    assert ("dropped", 1, -1, 0, 1) in rows
    assert ("wait", 0, -1, 4, 1) in rows


# Messages that make no sense

NONSENSE = [
    Computed(0, 1.0, True),
    Computed(-1, 1.0, True),
    Done(5),
    Done(2**63),
    Evaluated(1, 0, [1.0]),
    Figures(1, {}, 1.0),
    Beat(0),
    Kept(1),
    Saved(1, {}),
]


@pytest.mark.parametrize("message", NONSENSE)
def test_a_worker_that_tells_of_what_it_was_never_given_is_dropped(message):
    play = Play("async", workers=2)
    with pytest.raises(BadMessage):
        play.say(1, message)
    play.cut_off(1)
    play.to_the_end()
    assert play.learnt() == every(32, 1)


@pytest.mark.parametrize("message", [Ask(), Done(0), Leave(), Kept(1), Saved(1, {}), Unreachable(0)])
def test_a_server_that_tells_of_what_it_was_never_asked_is_dropped(message):
    play = Play("async", workers=1)
    with pytest.raises(BadMessage):
        play.say(FIRST_SERVER, message)


def test_a_worker_that_finishes_twice_or_before_it_computed_is_dropped():
    play = Play("ssp", workers=2, model={"staleness": 0})
    play.ask(0)
    with pytest.raises(BadMessage, match="before it was computed"):
        play.say(0, Done(0))
    play.say(0, Computed(0, 1.0, True))
    with pytest.raises(BadMessage, match="computed its contribution 0 twice"):
        play.say(0, Computed(0, 1.0, True))
    play.say(0, Done(0))
    with pytest.raises(BadMessage, match="finished its contribution 0 twice"):
        play.say(0, Done(0))


def test_a_worker_cannot_ask_without_end():
    play = Play("async", workers=2, here=False)
    play.join(0)
    with pytest.raises(BadMessage, match="at once"):
        for _ in range(100):
            play.say(0, Ask())


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
WORDS = ["ask", "computed", "done", "evaluated", "figures", "unreachable", "leave", "beat", "kept", "saved"]
FIELDS = ["clock", "cut", "piece", "server", "loss", "finite", "totals", "figures", "value", "applied", "files"]
NUMBERS = st.integers(-2, 5) | st.integers(-(2**63), 2**64 - 1)
SAID = st.builds(
    lambda word, fields: {"say": word, **fields},
    st.sampled_from(WORDS),
    st.dictionaries(st.sampled_from(FIELDS), NUMBERS | st.lists(st.floats(), max_size=3) | PLAIN, max_size=4),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([1, 2, FIRST_SERVER + 1]), SAID | PLAIN), max_size=20), st.integers(0, 2**32))
def test_whatever_some_say_the_others_finish_the_run(messages, seed):
    play, random = (
        Play("async", servers=2, replicas=2, workers=3, held_back=4, evaluate_every=lambda _: 1),
        Random(seed),
    )
    for peer, message in messages:
        play.ask(0)
        play.turn(0)
        if peer not in play.gone:
            try:
                play.deliver(play.roster.received(peer, message, play.now))
            except BadMessage:
                play.cut_off(peer)
    if not play.roster.outcome:
        for peer in (1, 2, FIRST_SERVER + 1):
            play.cut_off(peer)
        play.to_the_end(random)
    assert play.roster.outcome == "finished", play.roster.failure


@given(PLAIN | st.dictionaries(st.sampled_from(["is", "rank", "number", "facts", "samples"]), PLAIN, max_size=5))
def test_a_hello_that_makes_no_sense_is_refused(hello):
    play = Play("async", workers=1)
    with pytest.raises(BadMessage):
        play.roster.opened(50, hello, 0.0)


def test_a_worker_with_other_data_is_turned_away():
    play = Play("async", workers=1)
    play._hello = (33, 0)
    play.join(1)
    assert "another number of samples" in play.heard(1, End)[0].outcome
    assert play.heard(1, Dropped) == []
