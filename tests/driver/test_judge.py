"""The judge: one message, the cause first, consequences folded, and how to go on."""

from __future__ import annotations

import signal
from dataclasses import dataclass

import pytest

from driver._judged import AGAIN, AT, FRAMES, HOST, lines, said, verdict_of, watched
from monitor._made_runs import checkpoint
from volary.driver.server_group import NoServers
from volary.driver.watching.failure_detector import Rules, WorkerBeat
from volary.driver.watching.judge import judge, read_verdicts
from volary.engine._base import Ended, Exited
from volary.errors import BadInput, NotFinite, NotSaved, RanksDiffer, WorkerFailed, WorkerLost
from volary.run.directory import RunDirectory
from volary.session.spec import Session


def mpirun(directory: RunDirectory, code: int) -> Ended:
    log = directory.logs / "mpirun-workers.log"
    log.write_text("There are not enough slots\n")
    return Ended("mpirun", 77, code, -code if code < 0 else None, log)


def test_worker_that_has_a_part_of_the_network_is_named_with_it(directory):
    watch = watched()
    watch.on_beat(1, WorkerBeat(step=8, phase="exchange", progress=2, part="stage 2 of 3"))
    message = str(verdict_of(directory, watch, [Exited(1, -9, 9)]))
    named = "rank 1 (host h, process 101, stage 2 of 3) was killed by SIGKILL"
    assert message.startswith(f"{named}; last step 8, in exchange by its last heartbeat\n"), message


def test_launcher_that_was_killed_is_the_cause_although_workers_stopped_in_order(directory):
    stopped = [said(rank, "stopped") for rank in range(2)]
    error = verdict_of(directory, watched(), [], *stopped, launcher=mpirun(directory, -9))
    assert isinstance(error, WorkerLost)
    words = "was killed by SIGKILL, and its workers ended with it; last step 7"
    assert str(error) == f"mpirun (host {HOST}, process 77) {words}"


@pytest.mark.parametrize("verdicts", [(), (0, 1)])
def test_launcher_that_failed_before_the_end_of_a_worker_was_seen_is_the_cause(directory, verdicts):
    lost = [said(rank, "peer_lost", reason="the run is over") for rank in verdicts]
    error = verdict_of(directory, watched(), [], *lost, launcher=mpirun(directory, 1))
    assert str(error) == (
        f"mpirun (host {HOST}, process 77) exited with status 1, and its workers ended with it; last step 7\n"
        "  | There are not enough slots"
    )


def test_launcher_that_started_nobody_is_told_with_what_it_said(directory):
    error = verdict_of(directory, watched(joined=0), [], launcher=mpirun(directory, 1))
    assert lines(error)[:2] == [
        f"mpirun (host {HOST}, process 77) exited with status 1 before ranks 0, 1, 2 joined the run",
        "  | There are not enough slots",
    ]


@pytest.mark.parametrize("code", [0, 137])
def test_launcher_that_ended_as_a_worker_was_lost_is_not_the_cause_whatever_its_status(directory, code):
    watch = watched()
    for now, peer in enumerate((1, 0, 2), start=1):  # the launcher ended the others
        watch.tick(now / 10)
        watch.left(peer)
    watch.conclude()
    error = verdict_of(directory, watch, [], launcher=mpirun(directory, code))
    assert lines(error)[0] == "rank 1 (host h, process 101) died; last step 7, in forward by its last heartbeat"


def test_launcher_that_was_killed_when_all_had_finished_changes_nothing(directory):
    finished = {rank: said(rank, "finished", step=9) for rank in range(3)}
    assert judge(directory, watched(), [], finished, launcher=mpirun(directory, -9)).state == "finished"


def test_all_finished_is_finished_and_some_stopped_is_stopped(directory):
    finished = {rank: said(rank, "finished", step=9) for rank in range(3)}
    assert judge(directory, watched(), [], finished).state == "finished"
    stopped = judge(directory, watched(), [], finished | {1: said(1, "stopped", step=8)})
    assert (stopped.state, stopped.step) == ("stopped", 9)
    assert stopped.message == "stopped after step 9"


def test_error_of_a_workers_own_code_comes_before_those_that_it_broke_and_those_that_died_of_it(directory):
    watch = watched()
    watch.left(2)  # gloo may abort a process whose peer goes
    error = verdict_of(
        directory,
        watch,
        [Exited(2, -signal.SIGABRT, signal.SIGABRT)],
        said(0, "peer_lost", "the exchange broke"),
        said(1, "failed", AT + "ValueError: boom", FRAMES),
    )
    assert type(error) is WorkerFailed
    assert lines(error) == [
        "net.py:9 in forward: ValueError: boom",
        "  rank 1 (host h) at step 8, in forward",
        "  | net.py:9 in forward",
        "  |     boom()",
        "  | ... 8 frames of volary and torch",
        "  rank 0, 2 ended because of it",
        "whole traceback: runs/it/logs/worker-1.log",
        f"once that is fixed, {AGAIN}",
    ]


def test_equal_errors_are_counted_and_other_ones_named(directory):
    error = verdict_of(
        directory,
        watched(),
        [],
        said(0, "failed", AT + "ValueError: boom", FRAMES),
        said(1, "failed", "KeyError: 'x'", FRAMES, step=8),
        said(2, "failed", AT + "ValueError: boom", FRAMES),
    )
    assert str(error).count("boom()") == 1
    assert lines(error)[5:7] == ["  1 other rank ended with the same error", "  rank 1 failed too: KeyError: 'x'"]


def test_worker_whose_error_came_at_the_earliest_step_is_the_cause(directory):
    late, early = said(0, "failed", "A: late", FRAMES, step=9), said(2, "failed", "B: early", FRAMES, step=8)
    assert lines(verdict_of(directory, watched(), [], late, early))[:2] == [
        "B: early",
        "  rank 2 (host h) at step 9, in forward",
    ]


def test_long_traceback_is_cut_to_its_end(directory):
    error = verdict_of(directory, watched(), [], said(0, "failed", "E: x", (*map(str, range(500)), "E: x")))
    assert len(lines(error)) < 35
    assert "  | E: x" in lines(error)


@pytest.mark.parametrize(
    ("exit_code", "kind"), [(2, BadInput), (5, RanksDiffer), (6, NotFinite)], ids=["refused", "differ", "not finite"]
)
def test_sentence_of_ours_is_printed_once_whatever_number_of_ranks_found_it(directory, exit_code, kind):
    found = [said(rank, "refused", "the sentence", exit_code=exit_code, step=0) for rank in range(3)]
    error = verdict_of(directory, watched(), [], *found)
    assert (type(error), str(error)) == (kind, "the sentence")


def test_input_that_cannot_be_used_in_the_middle_of_a_run_is_an_error_of_the_run_and_names_where(directory):
    error = verdict_of(directory, watched(), [], said(1, "refused", "sample 100 is ragged", exit_code=2))
    assert type(error) is WorkerFailed
    assert lines(error) == [
        "sample 100 is ragged",
        "  rank 1 (host h) at step 8, in forward",
        f"once that is fixed, {AGAIN}",
    ]


def test_input_that_is_refused_before_a_resumed_run_goes_on_is_bad_input_whoever_counts_its_steps(directory):
    verdict = {1: said(1, "refused", "the data has other classes", exit_code=2, step=0)}
    with pytest.raises(BadInput) as caught:
        judge(directory, watched(), [], verdict, Resumed())
    assert (type(caught.value), str(caught.value)) == (BadInput, "the data has other classes")
    with pytest.raises(WorkerFailed):
        judge(directory, watched(), [], verdict, Resumed(now=41))


@dataclass
class Resumed(NoServers):
    """A roster that resumed after 40 steps, and is at step `now`."""

    now: int = 40

    def steps(self, reported: int) -> int:
        return self.now

    def begun(self, reported: int) -> bool:
        return self.now > 40


def test_run_whose_loss_was_not_a_number_is_not_to_be_resumed_but_trained_with_half_the_rate(directory):
    session = {"network": "lenet", "data": {"source": "digits"}, "optimizer": {"name": "sgd", "lr": 0.05}}
    directory.session.write_text(Session(**session, run={"name": "it"}).to_yaml())
    found = [said(rank, "failed", "the loss of rank 1 is NaN at step 8", exit_code=6) for rank in range(3)]
    assert lines(verdict_of(directory, watched(), [], *found)) == [
        "the loss of rank 1 is NaN at step 8",
        "resumed with the same settings it diverges again; lower the learning rate: "
        "volary train runs/it/session.yaml optimizer.lr=0.025 run.name=it-2",
        "or clip gradients (train.clip_norm=1), or leave such batches out (train.on_nonfinite=skip)",
    ]


def test_gradient_that_no_codec_can_encode_is_told_with_its_step(directory):
    reason = "the gradient of ip2.weight on rank 1 is NaN or infinite, which cannot be encoded"
    error = verdict_of(directory, watched(), [], said(1, "failed", reason, exit_code=6))
    assert (type(error), lines(error)[:2]) == (NotFinite, [reason, "  rank 1 (host h) at step 8, in forward"])
    assert not any("volary resume" in line for line in lines(error))


def test_no_path_is_stored_and_a_loop_of_the_users_own_is_not_said_to_be_resumable(directory):
    directory.session.write_text("function: train.py:train\n")
    error = verdict_of(directory, watched(), [], said(1, "failed", AT + "ValueError: boom", FRAMES))
    assert str(directory.path) not in str(error)
    assert "resume" not in error.report
    assert error.report.endswith("\nwhole traceback: runs/it/logs/worker-1.log")


def test_run_is_resumed_from_its_newest_checkpoint(directory):
    checkpoint(directory, 20, None)
    watch = watched()
    watch.left(1)
    error = verdict_of(directory, watch, [Exited(1, -9, 9)], said(0, "peer_lost", "x"), said(2, "peer_lost", "x"))
    assert lines(error)[-1] == "resume from step 20: volary resume it"


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        (Exited(1, -9, 9), "was killed by SIGKILL"),
        (Exited(1, -9, 9, out_of_memory=True), "was killed by SIGKILL, out of memory"),
        (Exited(1, -11, 11), "was killed by SIGSEGV"),
        (Exited(1, -40, 40), "was killed by signal 40"),
        (Exited(1, 7, None), "exited with status 7 without reporting a reason"),
        (Exited(1, 0, None), "exited with status 0 without reporting a reason"),
    ],
    ids=str,
)
def test_death_is_named_by_its_signal_or_status(directory, gone, words):
    watch = watched()
    watch.left(1)
    error = verdict_of(directory, watch, [gone], said(0, "peer_lost", "x"), said(2, "peer_lost", "x"))
    assert type(error) is WorkerLost
    assert lines(error) == [
        f"rank 1 (host h, process 101) {words}; last step 7, in forward by its last heartbeat",
        "  | the log of 1",
        "  rank 0, 2 ended because of it",
        "log: runs/it/logs/worker-1.log",
        AGAIN,
    ]


def test_worker_that_never_joined_is_named_with_its_exit(directory):
    error = verdict_of(directory, watched(joined=2), [Exited(2, 1, None)], said(0, "peer_lost"), said(1, "peer_lost"))
    assert (
        lines(error)[0]
        == f"rank 2 (host {HOST}) exited with status 1 without reporting a reason; before it joined the run"
    )


def test_worker_that_never_came_to_write_a_log_is_shown_with_that_of_its_launcher(directory):
    directory.log(2).unlink()
    (directory.logs / "ray-workers.log").write_text("Ray did not start: the node timed out\n")
    watch = watched(joined=2, rules=Rules(50, 100, 15))
    for tick in range(200):
        watch.tick(tick / 10)
    error = verdict_of(directory, watch, [], said(0, "peer_lost"), said(1, "peer_lost"))
    assert lines(error)[:2] == [
        f"rank 2 (host {HOST}) did not come within 15 s; before it joined the run",
        "  | Ray did not start: the node timed out",
    ]
    assert "log: runs/it/logs/ray-workers.log" in lines(error)


def test_worker_that_died_before_its_first_step_is_named_with_that(directory):
    watch = watched(joined=0)
    watch.joined(1, 1, 101, "h")
    error = verdict_of(directory, watch, [Exited(1, 7, None)])
    exited = "exited with status 7 without reporting a reason"
    assert lines(error)[0] == f"rank 1 (host h, process 101) {exited}; before its first step, while starting"


def test_hang_shows_the_stack_and_names_those_that_hang_too(directory):
    watch = watched(rules=Rules(5, 10, 15, stuck_after_s=10))
    for rank in (1, 2):
        watch.on_beat(
            rank, WorkerBeat(step=7, phase="forward", progress=2, rows=[[0.0]], stack=f"Thread main\n  in loop_{rank}")
        )
    for tick in range(200):
        watch.tick(tick / 10)
        watch.on_beat(0, WorkerBeat(step=7, phase="exchange", progress=2, rows=[[0.0]]))
        for rank in (1, 2):
            watch.on_beat(rank, WorkerBeat(step=7, phase="forward", progress=2))
    error = verdict_of(directory, watch, [])
    assert lines(error)[0].startswith(
        "rank 1 (host h, process 101) is alive but has made no progress for 10 s, in forward; rank 0 waits for it; "
        "last step 7"
    )
    assert lines(error)[1:4] == [
        "  | Thread main",
        "  |   in loop_1",
        "  rank 2 is alive but has made no progress for 10 s, in forward; rank 0 waits for it",
    ]


def test_silent_worker_is_not_shown_with_the_stack_of_an_earlier_standstill(directory):
    watch = watched()
    watch.on_beat(1, WorkerBeat(step=7, phase="forward", progress=1, stack="Thread main\n  import torch"))
    for tick in range(200):
        watch.tick(tick / 10)
        for rank in (0, 2):
            watch.on_beat(rank, WorkerBeat(step=7, phase="forward", progress=tick))
    error = verdict_of(directory, watch, [])
    assert "has been silent for 10 s" in lines(error)[0]
    assert lines(error)[1] == "  | the log of 1"


def test_worker_that_left_its_own_loop_early_is_the_cause_whoever_saw_it(directory):
    first = "rank 1 (host h, process 101) has left its training loop after step 7, and rank 0, 2 "
    report = []
    for watched_it in (True, False):
        watch = watched(rules=Rules(5, 10, 120, own_loop=True))
        bye = said(1, "finished")
        watch.on_beat(1, WorkerBeat(step=7, phase="between steps", progress=2, bye=bye))
        for tick in range(1300 if watched_it else 0):
            watch.tick(tick / 10)
            for rank in (0, 2):
                watch.on_beat(rank, WorkerBeat(step=7, phase="exchange", progress=2))
        others = [said(rank, "peer_lost", "the exchange broke: x") for rank in (0, 2)]
        error = verdict_of(directory, watch, [], bye, *others)
        assert type(error) is RanksDiffer
        report.append(lines(error))
    assert report[0] == report[1]
    assert report[0][0].startswith(first.replace("rank 0, 2", "ranks 0, 2") + "wait in step 8: all workers must take")
    assert report[0][1] == "log: runs/it/logs/worker-1.log"


def test_worker_that_finished_the_step_in_which_another_lost_its_way_has_not_left_early(directory):
    watch = watched(rules=Rules(5, 10, 120, own_loop=True))
    error = verdict_of(directory, watch, [], said(1, "finished", step=8), said(0, "peer_lost", "the exchange broke"))
    assert type(error) is WorkerLost


def test_silent_worker_keeps_its_name_though_it_woke_and_found_itself_expelled(directory):
    watch = watched(world_size=1, joined=1)
    for tick in range(200):
        watch.tick(tick / 10)
    error = verdict_of(directory, watch, [], said(0, "peer_lost", "the driver is gone", exit_code=4))
    assert "has been silent for 10 s" in lines(error)[0]


def test_worker_that_died_after_it_had_finished_is_not_lost(directory):
    watch = watched(world_size=1, joined=1)
    watch.left(0)
    aborted = Exited(0, -signal.SIGABRT, signal.SIGABRT)  # on its way out: the verdict decides
    assert judge(directory, watch, [aborted], {0: said(0, "finished")}).state == "finished"


def test_verdict_is_the_file_of_this_life_or_what_the_goodbye_carried(directory):
    watch = watched()
    watch.on_beat(1, WorkerBeat(step=8, phase="between steps", progress=9, bye=said(1, "finished", step=8)))
    said(0, "finished", step=8).write(directory.verdicts)
    said(2, "finished", step=3).write(directory.verdicts)
    found = read_verdicts(directory, watch, attempt=0)
    assert {rank: verdict.step for rank, verdict in found.items()} == {0: 8, 1: 8, 2: 3}
    assert set(read_verdicts(directory, watch, attempt=1)) == {1}


def test_a_worker_that_could_not_save_the_end_says_so_for_all(directory):
    sentence = "the last checkpoint, of step 7, could not be written: no room"
    error = verdict_of(directory, watched(), [], *(said(rank, "failed", sentence, exit_code=1) for rank in range(3)))
    assert isinstance(error, NotSaved)
    assert lines(error) == [sentence, AGAIN]
