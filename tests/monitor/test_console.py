from __future__ import annotations

import io
import re
import time
from contextlib import closing
from dataclasses import replace

import pytest

from monitor._made_runs import checkpoint, evaluated, finished, journal, new_run, rows, started, whole_run
from volary.monitor.digest import Follower
from volary.monitor.terminal.console import Console
from volary.monitor.terminal.plain import PROGRESS_EVERY_S, START_AFTER_S, Plain, progress
from volary.run.directory import RunDirectory
from volary.run.resuming import resuming


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(text: str) -> list[str]:
    """Without the time of day."""
    return [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in text.splitlines()]


def test_without_a_terminal_a_run_is_told_in_lines():
    directory, out = new_run(), io.StringIO()
    console = Console(stream=out)
    with journal(directory) as run, directory.lock():
        started(run, 46)
        console.started(directory)
        run.event("exchange", 0, 0, route="torch, since each worker has a machine", update="chunk by chunk")
        run.steps(rows(1, 23))
        evaluated(run, 23, 0.9132)
        run.event("checkpoint", 0, 23, path="step-00000023", seconds=0.01)
        console.look()
        run.event("suspect", 1, 30, reason="rank 1 (host a) has been silent for 5 s")
        console.look()
        run.steps(rows(24, 46))
        evaluated(run, 46, 0.9733)
        finished(run, 46)
        console.ended()
    assert lines(out.getvalue()) == [
        "run lenet-digits-1: 2 workers, engine local, runs/lenet-digits-1",
        "exchange: torch, since each worker has a machine; updated chunk by chunk",
        "step 23: accuracy 0.9132, loss 0.1, the best so far",
        "step 23: checkpoint",
        "step 23/46, epoch 1.0: loss 0.08696, lr 0.05, 640 samples/s, 2 s left",
        "warning: step 30: rank 1 (host a) has been silent for 5 s",
        "step 46: accuracy 0.9733, loss 0.1, the best so far",
        "finished  at step 46 in 14 s: accuracy 0.9733, loss 0.1",
        "best      accuracy 0.9733 at step 46",
        "run       runs/lenet-digits-1",
        "next      volary show lenet-digits-1",
        "          volary evaluate lenet-digits-1",
        "          volary export lenet-digits-1",
    ]


def test_a_search_for_the_size_of_batches_is_told_and_the_size_goes_on_to_be_shown():
    directory, out = new_run(), io.StringIO()
    console = Console(stream=out)
    with journal(directory) as run, directory.lock():
        started(run, 46)
        console.started(directory)
        run.event("batch_size", 0, 23, size=91, was=64, losses={"64": 0.5, "91": 0.5, "128": 0.6})
        run.event("batch_size", 0, 40, size=91, was=91, losses={"64": 0.4, "91": 0.4, "128": 0.6})
        run.note(batch_size=91)
        run.steps(rows(1, 40))
        console.look()
        console.ended()
    told = lines(out.getvalue())
    assert "step 23: batches of 91 samples instead of 64" in told
    assert "step 40: batches of 91 samples, as before" in told
    assert any(line.startswith("step 40/46") and ", batch 91, " in line for line in told)


def test_progress_lines_keep_their_distance():
    directory, out, now = new_run(), io.StringIO(), [0.0]
    plain = Plain(out, clock=lambda: now[0])
    with journal(directory) as run:
        started(run)
        follower = Follower(directory)
        plain.show(follower.look())
        for step in range(1, 31):
            run.steps(rows(step, step))
            plain.show(follower.look())
            now[0] += PROGRESS_EVERY_S / 10
        follower.close()
    told = [line for line in lines(out.getvalue()) if line.startswith("step ")]
    assert [line.split("/")[0] for line in told] == ["step 1", "step 11", "step 21"]


def test_a_stopped_run_says_how_to_go_on():
    directory, out = new_run(), io.StringIO()
    console = Console(stream=out)
    with journal(directory) as run:
        started(run)
        console.started(directory)
        run.steps(rows(1, 7))
        finished(run, 7, "stopped")
        console.ended()
    told = lines(out.getvalue())
    assert told[-2:] == [
        "next      begin again, as there is no checkpoint yet: volary resume lenet-digits-1",
        "          volary show lenet-digits-1",
    ]


def test_what_a_run_is_resumed_from_is_told_and_a_loop_of_ones_own_only_if_it_saved():
    directory = new_run()
    assert resuming(directory) == "begin again, as there is no checkpoint yet: volary resume lenet-digits-1"
    session = directory.session.read_text()
    directory.session.write_text("function: train.py:train\n")
    assert resuming(directory) == ""
    checkpoint(directory, 20, None)
    for text in (session, "function: train.py:train\n", "program: train.py\n"):
        directory.session.write_text(text)
        assert resuming(directory) == "resume from step 20: volary resume lenet-digits-1"


@pytest.mark.parametrize("quiet", [True, False])
def test_that_the_run_was_asked_to_stop_is_said_at_once(quiet):
    directory, out = new_run(), io.StringIO()
    console = Console(quiet, out)
    with journal(directory) as run, directory.lock():
        started(run)
        console.started(directory)
        run.steps(rows(1, 7))
        run.event("stopping")
        console.look()
        console.look()
        assert lines(out.getvalue()).count("stopping after this step; Ctrl-C again stops now") == 1
        console.ended()


def test_a_resumed_run_does_not_tell_its_earlier_life_again():
    directory, out = new_run(), io.StringIO()
    with journal(directory) as run:
        run.start_attempt(0)
        started(run, 46)
        run.steps(rows(1, 30))
        run.event("suspect", 1, 25, reason="rank 1 (host a) has been silent for 5 s")
        evaluated(run, 30, 0.9)
        finished(run, 30, "stopped")
        run.start_attempt(23)
        started(run, 46)
        console = Console(stream=out)
        console.started(directory)
        run.event("resumed", 0, 23, from_step=23)
        run.steps(rows(24, 26))
        console.look()
        finished(run, 26, "stopped")
        console.ended()
    assert lines(out.getvalue())[1:4] == [
        "resumed from step 23",
        "step 26/46, epoch 1.1: loss 0.07692, lr 0.05, 640 samples/s, 2 s left",
        "stopped   at step 26 in 14 s",
    ]


def test_a_failed_run_leaves_the_last_word_to_its_error():
    directory, out = new_run(), io.StringIO()
    console = Console(stream=out)
    with journal(directory) as run:
        started(run)
        console.started(directory)
        finished(run, 7, "failed", "rank 1 died")
        console.ended()
    assert lines(out.getvalue())[-2:] == ["run       runs/lenet-digits-1", "failed    at step 7 in 14 s"]


def test_on_a_terminal_the_last_words_repeat_nothing_of_the_picture(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    whole_run()
    directory, out = RunDirectory("runs/lenet-digits-1"), Terminal()
    console = Console(stream=out)
    console.started(directory)
    console.ended()
    told = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", out.getvalue())
    assert "accuracy 0.9733   at step 46" in told
    assert "runs/lenet-digits-1" in told
    last = told[told.rindex("\nfinished") :].split("\n")[1:-1]
    assert last == [
        "finished  at step 46 in 14 s: accuracy 0.9733, loss 0.1",
        "next      volary show lenet-digits-1",
        "          volary evaluate lenet-digits-1",
        "          volary export lenet-digits-1",
    ]


def test_a_start_that_takes_long_is_told_with_what_it_waits_for():
    directory, out, now = new_run(), io.StringIO(), [0.0]
    plain = Plain(out, clock=lambda: now[0])
    with journal(directory) as run, directory.lock():
        run.start_attempt(0)
        started(run)
        follower = Follower(directory)

        def shown_at(seconds: float) -> list[str]:
            now[0] = seconds
            before = len(out.getvalue())
            plain.show(follower.look())
            return [re.sub(r", \d+ s$", "", line) for line in lines(out.getvalue()[before:])]

        assert shown_at(0.0)[1:] == shown_at(START_AFTER_S / 2) == []
        run.note(hosts='{"1": "a"}')
        assert shown_at(START_AFTER_S) == ["starting: 1 of 2 workers connected"]
        assert shown_at(START_AFTER_S + 1) == []
        run.note(hosts='{"0": "a", "1": "a"}', doing_0="importing torch", doing_1="importing torch")
        assert shown_at(START_AFTER_S + PROGRESS_EVERY_S) == ["starting: importing torch"]
        run.note(doing_0="building the network")
        assert shown_at(30) == ["starting: rank 1 is importing torch"]
        run.steps(rows(1, 2))
        assert [line for line in shown_at(60) if line.startswith("starting")] == []
        run.start_attempt(0)  # what an earlier attempt did says nothing of this one
        run.event("started")
        assert shown_at(90) == ["starting: 0 of 2 workers connected"]
        follower.close()
    assert "rank 1 died" not in out.getvalue()


def test_quiet_is_one_line():
    directory, out = whole_run(), io.StringIO()
    console = Console(quiet=True, stream=out)
    console.started(directory)
    console.look()
    console.ended()
    assert lines(out.getvalue()) == [
        "lenet-digits-1 finished at step 46 in 14 s: accuracy 0.9733, loss 0.1 (runs/lenet-digits-1)"
    ]


def test_on_a_terminal_the_view_is_redrawn_and_the_cursor_comes_back(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    directory, out = whole_run(), Terminal()
    console = Console(stream=out)
    console.started(directory)
    console.look()
    console.ended()
    drawn = out.getvalue()
    assert drawn.count("\x1b[?25l") == drawn.count("\x1b[?25h") == 1
    assert "\x1b[1A" in drawn  # it went up, to draw over itself
    assert drawn.rstrip().endswith("volary export lenet-digits-1")


def test_a_terminal_that_cannot_redraw_gets_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    directory, out = whole_run(), Terminal()
    console = Console(stream=out)
    console.started(directory)
    console.ended()
    assert "\x1b" not in out.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_that_a_run_holds_ends_the_training_that_is_watched(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    directory, out = new_run("odd"), Terminal() if terminal else io.StringIO()
    console = Console(stream=out)
    with journal(directory) as run:
        console.started(directory)
        run.note(state="[bold]?", steps_planned=-3, metric="\x1b[31m[/red]", best="nan", best_step="nan")
        run.steps(rows(1, 2, loss=float("nan"), lr=float("inf"), step_s=0.0))
        run.event("suspect")
        run.event("evaluated", 0, 1, accuracy=None, note="x", loss=float("nan"))
        run.event("warning", text=["[/]", {"a": 1}])
        run.metrics(1, {"[/]": float("nan")})
        console.look()
        directory.database.unlink()
        console.look()
        console.ended()
    assert "odd" in out.getvalue()


def test_a_stream_that_nobody_reads_any_more_is_no_reason_to_stop():
    directory, out = whole_run(), io.StringIO()
    console = Console(stream=out)
    console.started(directory)
    out.close()
    console.look()
    console.ended()


def test_a_run_that_never_began_ends_in_silence():
    out = io.StringIO()
    console = Console(stream=out)
    console.look()
    console.ended()
    assert out.getvalue() == ""


def test_the_end_is_told_as_the_driver_knows_it_though_the_disk_did_not_take_it():
    directory, out = new_run(), io.StringIO()
    console = Console(stream=out)
    with journal(directory) as run, directory.lock():
        started(run, 46)
        run.steps(rows(1, 40))
        console.started(directory)
        console.ended("failed", 46)
    assert "failed    at step 46 in" in out.getvalue()
    assert "running" not in out.getvalue()


def test_of_a_loop_of_ones_own_only_what_it_tells_is_shown():
    directory = new_run()
    directory.session.write_text("function: train.py:train\nstrategy: {workers: 2}\n")
    with journal(directory) as run, directory.lock():
        started(run, 46)
        run.steps(rows(1, 10, samples=0, epoch=0.0, loss=float("nan")))
        run.metrics(10, {"loss": 0.25, "accuracy": 0.5})
        run.steps(rows(11, 11, samples=0, epoch=0.0, loss=float("nan")))
        with closing(Follower(directory)) as follower:
            said = progress(follower.look())
    assert said.startswith("step 11/46: loss 0.25, lr 0.05")
    assert "samples/s" not in said
    assert "epoch" not in said


def test_lines_are_in_the_order_of_their_times_though_an_event_is_read_late():
    directory, out = new_run(), io.StringIO()
    plain = Plain(out)
    with journal(directory) as run, closing(Follower(directory)) as follower:
        started(run, 46)
        plain.show(follower.look())
        run.event("resumed", from_step=23)
        digest = follower.look()
        plain.show(replace(digest, news=[replace(event, at=time.time() - 2) for event in digest.news]))
    times = [line[:8] for line in out.getvalue().splitlines()]
    assert len(times) == 2
    assert times == sorted(times)
