"""States that are kept while the run goes on: what is measured of them, and which become checkpoints."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from server._play import FIRST_SERVER, MODELS, Play, Shelf
from volary.comm.control.errors import BadMessage
from volary.run.control.requests import ChangeRate, WriteCheckpoint
from volary.server.protocol.from_members import AskSave, Evaluated, Kept, Saved
from volary.server.protocol.to_members import EvaluatePiece, Figure, Keep, Learn, Rate, Release, Save, SaveEnded
from volary.server.roster.snapshot import STORE_S

# Evaluation


def test_a_state_is_kept_measured_in_pieces_and_judged_while_others_go_on():
    play = Play("async", workers=2, samples=64, validation=10, evaluate_every=lambda _: 1)
    play.ask(0)
    play.turn(0)
    play.ask(1)
    play.turn(1)
    assert play.heard(FIRST_SERVER, Keep) == [Keep(1, 2)]
    play.ask(0)
    play.ask(1)
    pieces = [play.heard(rank, EvaluatePiece)[0] for rank in (0, 1)]
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


def test_a_text_is_written_of_a_state_that_is_not_evaluated_and_by_one_of_those_who_evaluate():
    terms: Any = {"evaluate_every": lambda _: 2, "write_every": lambda _: 1}
    play = Play("bsp", workers=1, samples=16, validation=10, **terms)
    for _ in range(2):
        play.ask(0)
        play.turn(0)
    (alone,) = play.heard(0, EvaluatePiece)
    assert (alone.start, alone.end, alone.step, alone.writes) == (0, 0, 1, True)
    assert play.heard(FIRST_SERVER, Release) == [Release(alone.snapshot)]  # it is told to nobody as an evaluation
    for _ in range(3):
        play.ask(0)
        play.turn(0)
    _, beside = play.heard(0, EvaluatePiece)
    assert (beside.start, beside.end, beside.step, beside.writes) == (0, 10, 2, True)
    assert [data["step"] for _, data in play.said("evaluated")] == [2]
    assert play.said("checkpoint") == [(None, {"step": 2})]


def test_a_text_of_a_dead_worker_is_written_by_another():
    play = Play("async", workers=2, samples=16, validation=10, write_every=lambda _: 1)
    for _ in range(2):
        play.ask(0)
        play.turn(0)
    play.ask(1)
    (given,) = play.heard(1, EvaluatePiece)
    play.cut_off(1)
    play.ask(0)
    assert play.heard(0, EvaluatePiece) == [given]


def test_a_piece_of_a_dead_worker_is_measured_by_another():
    play = Play("async", workers=2, samples=16, validation=10, evaluate_every=lambda _: 1)
    play.ask(0)
    play.turn(0)
    play.ask(0)
    play.turn(0)
    play.ask(1)
    assert play.heard(1, EvaluatePiece)
    play.cut_off(1)
    play.to_the_end()
    assert len(play.said("evaluated")) == 2


def test_one_that_dies_while_it_says_what_the_totals_mean_is_replaced():
    play = Play("async", workers=2, samples=8, validation=1, evaluate_every=lambda _: 1)
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
    play = Play("bsp", servers=2, workers=1, samples=8, validation=4, evaluate_every=lambda _: 1)
    play.unanswered = {Keep}
    play.ask(0)
    play.turn(0)
    play.ask(0)
    play.say(FIRST_SERVER, Kept(1))
    assert not play.heard(0, EvaluatePiece)
    play.say(FIRST_SERVER + 1, Kept(1))
    assert play.heard(0, EvaluatePiece)


def test_patience_ends_the_run_early():
    play = Play("bsp", workers=1, samples=400, validation=4, evaluate_every=lambda _: 2, patience=2)
    play.value = iter([5.0, 4.0, 3.0, 2.0, 1.0])
    play.to_the_end()
    assert play.roster.outcome == "finished"
    assert play.roster.steps < 50
    assert play.shelf.committed[-1][0] == play.roster.steps


# Checkpoints


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
    play = Play("bsp", workers=1, samples=32, validation=4, evaluate_every=lambda _: 2, shelf=shelf)
    play.value = iter([5.0, 1.0])
    play.to_the_end()
    assert [(step, metric) for step, _, _, metric in shelf.committed] == [(2, 5.0), (4, None)]
    assert shelf.committed[-1][2]["best"] == {"value": 5.0, "step": 2, "waited": 1}


def test_a_checkpoint_says_what_was_best_up_to_it_though_later_states_were_measured_meanwhile():
    shelf = Shelf()
    shelf.away = []
    every: Any = {"evaluate_every": lambda _: 1, "checkpoint_every": lambda _: 1}
    play = Play("bsp", workers=1, samples=32, validation=4, shelf=shelf, **every)
    play.value = iter([1.0, 5.0, 3.0, 4.0])
    while len(play.said("evaluated")) < 3:
        play.ask(0)
        play.turn(0)
    assert not shelf.committed
    (begun,), shelf.away = shelf.away, None
    begun.set_result(None)
    play.tick()
    play.to_the_end()
    found = [(step, state["best"]) for step, _, state, _ in shelf.committed]
    best = [(1.0, 1, 0), (5.0, 2, 0), (5.0, 2, 1), (5.0, 2, 2)]
    assert found == [
        (step, {"value": value, "step": at, "waited": waited}) for step, (value, at, waited) in enumerate(best, 1)
    ]


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
    play.say(FIRST_SERVER + 1, Saved(saves[0].snapshot, {"shard-1": "x"}))
    assert play.shelf.committed == []
    play.say(FIRST_SERVER + 1, Saved(saves[0].snapshot, {"shard-0": "y"}))
    assert play.shelf.committed[0][1] == {"shard-0": "y", "shard-1": "x"}


def work_until_saved_in_vain(play, times):
    """Work without letting time pass, until so many saves have failed."""
    while len(play.said("checkpoint_failed")) < times:
        play.ask(0)
        play.turn(0)


def reasons(play):
    return [data["reason"] for _, data in play.said("checkpoint_failed")]


def test_a_full_disk_ends_the_save_and_not_the_run_and_the_last_save_is_tried_again():
    shelf = Shelf()
    shelf.full = True
    play = Play("bsp", workers=1, samples=32, checkpoint_every=lambda _: 2, shelf=shelf)
    work_until_saved_in_vain(play, 2)
    full = "no space left on device"
    assert reasons(play)[0] == f"{full}; training goes on, older checkpoints stay"
    assert reasons(play)[1] == f"{full}; it is the last one, and tried again in 1 s"
    play.tick()
    play.tick(0.5)
    assert (play.roster.outcome, len(reasons(play))) == (None, 2), "it is not time yet"
    play.tick(0.6)
    assert len(reasons(play)) == 3
    shelf.full = False
    play.tick()
    play.tick(2.1)
    assert play.roster.outcome == "finished"
    assert (play.roster.unsaved, [step for step, *_ in shelf.committed]) == ("", [4])
    assert shelf.given_up == [2, 4, 4], "nothing of them is in the way of the next try"


def test_a_run_whose_last_state_cannot_be_saved_ends_and_says_so():
    shelf = Shelf()
    shelf.full = True
    play = Play("bsp", workers=1, samples=32, shelf=shelf)
    work_until_saved_in_vain(play, 1)
    for _ in range(100):
        play.tick()
    assert play.roster.outcome == "finished"
    assert play.roster.unsaved == "the last checkpoint, of step 4, could not be written: no space left on device"
    assert len(reasons(play)) == 4
    assert reasons(play)[-1] == "no space left on device; it was the last one"
    kept, released = play.heard(FIRST_SERVER, Keep), play.heard(FIRST_SERVER, Release)
    assert [one.snapshot for one in kept] == [one.snapshot for one in released] == [1]


def test_nobody_waits_for_a_store_that_takes_its_time_and_the_run_ends_once_its_last_state_counts():
    shelf = Shelf()
    shelf.away = []
    play = Play("bsp", workers=1, samples=32, checkpoint_every=lambda _: 2, shelf=shelf)
    for _ in range(4):
        play.ask(0)
        play.turn(0)
    assert play.roster.steps == 4
    saved = []
    while not play.roster.outcome:
        assert play.said("checkpoint") == saved
        (asked,) = shelf.away
        shelf.away.clear()
        saves = len(play.heard(FIRST_SERVER, Save))
        play.tick()
        assert (len(play.heard(FIRST_SERVER, Save)), play.said("checkpoint")) == (saves, saved), "it has yet to answer"
        asked.set_result(None)
        play.tick()
        saved = play.said("checkpoint")
    assert [data["step"] for _, data in saved] == [2, 4] == [step for step, *_ in shelf.committed]


def test_a_store_that_never_answers_is_waited_for_so_long_and_named():
    shelf = Shelf()
    shelf.away = []
    play = Play("bsp", workers=1, samples=32, shelf=shelf)
    for _ in range(4):
        play.ask(0)
        play.turn(0)
    for _ in range(int(5 * STORE_S)):
        play.tick(1.0)
    why = f"the store has not answered for {STORE_S:.0f} s"
    assert reasons(play) == [
        f"{why}; it is the last one, and tried again in 1 s",
        f"{why}; it is the last one, and tried again in 2 s",
        f"{why}; it is the last one, and tried again in 4 s",
        f"{why}; it was the last one",
    ]
    assert play.roster.outcome == "finished"
    assert play.roster.unsaved == f"the last checkpoint, of step 4, could not be written: {why}"


def test_a_save_is_given_up_only_when_nobody_writes_to_it_any_more():
    play = Play("bsp", servers=2, workers=1, samples=16, checkpoint_every=lambda _: 1)
    play.unanswered = {Save}
    play.ask(0)
    play.turn(0)
    (save,) = play.heard(FIRST_SERVER, Save)
    play.say(FIRST_SERVER, Saved(save.snapshot, {}, "no space left on device"))
    assert (reasons(play), play.shelf.given_up) == ([], [])
    play.say(FIRST_SERVER + 1, Saved(save.snapshot, {"shard-1": "x"}))
    assert reasons(play) == ["server 0: no space left on device; training goes on, older checkpoints stay"]
    assert play.shelf.given_up == [1]


def test_a_state_whose_save_failed_is_saved_again_where_it_turns_out_to_be_the_last():
    shelf = Shelf()
    shelf.full = True
    play = Play("bsp", workers=1, samples=32, checkpoint_every=lambda _: 2, shelf=shelf)
    work_until_saved_in_vain(play, 1)
    shelf.full = False
    play.deliver(play.roster.finish(play.now))
    play.to_the_end()
    assert (play.roster.outcome, play.roster.unsaved) == ("stopped", "")
    assert [step for step, *_ in shelf.committed] == [2]


def test_every_kept_state_is_released():
    play = Play("async", workers=2, samples=64, validation=4, evaluate_every=lambda _: 1, checkpoint_every=lambda _: 3)
    play.to_the_end(Random(5))
    kept, released = play.heard(FIRST_SERVER, Keep), play.heard(FIRST_SERVER, Release)
    assert sorted(one.snapshot for one in kept) == sorted(one.snapshot for one in released)


def test_an_evaluation_says_how_many_samples_could_not_be_read_and_once_while_it_is_the_same():
    play = Play("bsp", workers=1, samples=24, validation=10, evaluate_every=lambda _: 1)
    while not play.roster.outcome:
        play.ask(0)
        if play.tasks[0] and isinstance(play.tasks[0][0], EvaluatePiece):
            task = play.tasks[0].popleft()
            play.say(0, Evaluated(task.snapshot, task.piece, [10.0], 2))
        play.turn(0)
    assert len(play.said("evaluated")) == 3
    assert [data["text"] for _, data in play.said("warning")] == [
        "2 of 10 samples of the test part could not be read; figures are of the others; `volary show` lists them"
    ]


# What workers have of their own


@pytest.mark.parametrize(("name", "model"), MODELS)
def test_residuals_are_kept_as_of_each_worker_s_newest_contribution_in_the_state(name, model):
    play = Play(name, model=model, workers=3, samples=64, residuals=True, checkpoint_every=lambda _: 2)
    play.to_the_end(Random(3))
    keeps = play.heard(FIRST_SERVER, Keep)
    assert len(keeps) == len(play.shelf.committed) > 1
    for _, files, _, _ in play.shelf.committed:
        assert files == {"shard-0": "checksum", **{f"rank-{rank}": "checksum" for rank in range(3)}}
    for keep in keeps:
        done = [closing for closing in play.closings if closing.number <= keep.number]
        for rank in range(3):
            (own,) = [one.number for one in play.heard(rank, Keep) if one.snapshot == keep.snapshot]
            clocks = [one.clock for closing in done for one in (*closing.contributions, *closing.dropped)
                      if one.worker == rank]  # fmt: skip
            assert own == max(clocks, default=-1)
    for rank in range(3):
        assert [one.snapshot for one in play.heard(rank, Release)] == [one.snapshot for one in play.heard(rank, Keep)]


def test_a_worker_hears_how_far_its_contributions_are_done_with_before_any_state_that_is_not_older():
    play = Play("ssp", workers=2, samples=64, residuals=True, checkpoint_every=lambda _: 1)
    play.to_the_end(Random(5))
    for rank in range(2):
        oldest = -1
        for said in play.told[rank]:
            if isinstance(said, Learn):
                assert said.settled >= oldest
                oldest = said.settled
            elif isinstance(said, Keep):
                assert said.number >= oldest


def test_nobody_is_asked_for_residuals_where_codecs_leave_nothing_out():
    play = Play("bsp", checkpoint_every=lambda _: 1)
    play.to_the_end()
    assert not any(play.heard(rank, kind) for rank in range(2) for kind in (Keep, Save, Release))


def test_a_checkpoint_waits_for_the_residuals_of_all_who_are_here_and_for_nobody_who_has_gone():
    play = Play("async", workers=2, samples=64, residuals=True, checkpoint_every=lambda _: 1)
    play.unanswered = {Save}
    for rank in (0, 1):
        play.ask(rank)
        play.turn(rank)
    (save,) = play.heard(FIRST_SERVER, Save)
    assert [one.snapshot for rank in range(2) for one in play.heard(rank, Save)] == [save.snapshot, save.snapshot]
    play.say(FIRST_SERVER, Saved(save.snapshot, {"shard-0": "x"}))
    play.say(0, Saved(save.snapshot, {"rank-0": "y"}))
    assert play.shelf.committed == []
    play.cut_off(1)
    assert play.shelf.committed[0][1] == {"shard-0": "x", "rank-0": "y"}


def test_a_worker_that_cannot_write_its_residuals_ends_the_save_and_is_named():
    play = Play("bsp", workers=2, samples=32, residuals=True, checkpoint_every=lambda _: 2)
    play.unanswered = {Save}
    for rank in (0, 1, 0, 1):
        play.ask(rank)
        play.turn(rank)
    (save,) = play.heard(FIRST_SERVER, Save)
    play.say(0, Saved(save.snapshot, {"rank-0": "y"}))
    play.say(FIRST_SERVER, Saved(save.snapshot, {"shard-0": "x"}))
    play.say(1, Saved(save.snapshot, {}, "no space left on device"))
    assert reasons(play) == ["rank 1: no space left on device; training goes on, older checkpoints stay"]
    assert play.shelf.committed == []
    with pytest.raises(BadMessage, match="rank 0 has saved snapshot 9, which nobody asked for"):
        play.say(0, Saved(9, {}))


# What is asked


def test_what_is_asked_comes_with_the_next_update_and_is_saved():
    play = Play("ssp", workers=2, samples=64, validation=0)
    play.ask(0)
    play.turn(0)
    play.deliver(play.roster.ask(WriteCheckpoint(), play.now))
    assert play.heard(FIRST_SERVER, Keep) == []
    play.deliver(play.roster.ask(ChangeRate(0.5), play.now))
    samples = play.roster.samples
    assert [play.heard(peer, Rate) for peer in (FIRST_SERVER, 0, 1)] == [[Rate(samples, 0.5)]] * 3
    play.ask(1)
    play.turn(1)
    (kept,) = play.heard(FIRST_SERVER, Keep)
    assert [step for step, *_ in play.shelf.committed] == [play.roster.steps]
    play.join(2)
    assert play.heard(2, Rate) == [Rate(samples, 0.5)], "whoever comes later learns it too"
    play.to_the_end()
    assert len(play.heard(FIRST_SERVER, Rate)) == 1
    assert kept.number == 2


# What own loops save


def test_own_loops_that_keep_step_are_saved_once_all_ask_and_what_they_finished_is_in_an_update():
    play = Play("bsp", workers=2, samples=32)
    play.unanswered = {Save}
    play.ask(0)
    play.ask(1)
    play.turn(0)
    play.say(0, AskSave(1))
    play.say(1, AskSave(1))
    assert play.heard(FIRST_SERVER, Keep) == []
    play.turn(1)
    assert [one.number for one in play.heard(FIRST_SERVER, Keep)] == [1]
    assert [[one.first for one in play.heard(rank, Save)] for rank in (0, 1)] == [[True], [False]]
    (save,) = play.heard(FIRST_SERVER, Save)
    play.say(FIRST_SERVER, Saved(save.snapshot, {"shard-0": "x"}))
    play.say(0, Saved(save.snapshot, {"rank-0": "y", "state": "z"}))
    assert play.heard(0, SaveEnded) == []
    play.say(1, Saved(save.snapshot, {"rank-1": "y"}))
    assert play.heard(0, SaveEnded) == play.heard(1, SaveEnded) == [SaveEnded()]
    assert play.shelf.committed[0][2]["of_loops"]


def test_where_each_goes_at_its_own_pace_the_first_who_is_here_saves_for_all_and_takes_it_along_when_it_goes():
    play = Play("async", workers=2, samples=64)
    play.unanswered = {Save}
    for rank in (0, 1):
        play.ask(rank)
        play.turn(rank)
    play.say(1, AskSave(1))
    assert play.heard(1, SaveEnded) == [SaveEnded()]
    play.say(0, AskSave(1))
    (save,) = play.heard(FIRST_SERVER, Save)
    assert [[one.first for one in play.heard(rank, Save)] for rank in (0, 1)] == [[True], [False]]
    play.say(1, Saved(save.snapshot, {"rank-1": "y"}))
    play.cut_off(0)
    play.say(FIRST_SERVER, Saved(save.snapshot, {"shard-0": "x"}))
    assert reasons(play) == ["rank 0 has gone; training goes on, older checkpoints stay"]
    assert play.shelf.committed == []
    play.say(1, AskSave(1))
    assert play.heard(1, Save)[-1].first


def test_a_stopped_run_of_loops_that_save_is_resumed_from_what_they_saved():
    play = Play("bsp", workers=1, samples=64)
    play.ask(0)
    play.turn(0)
    play.say(0, AskSave(1))
    assert len(play.shelf.committed) == 1
    play.ask(0)
    play.turn(0)
    play.deliver(play.roster.finish(play.now))
    play.to_the_end()
    assert play.roster.outcome == "stopped"
    assert len(play.shelf.committed) == 1
