from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from monitor._made_runs import evaluated, journal, new_run, rows, started
from volary.monitor.digest import Digest, Follower
from volary.monitor.terminal.live import drawing
from volary.run.directory import RunDirectory


def recorded(digest: Digest, width: int = 80, colours: bool = True) -> list[str]:
    system = "truecolor" if colours else None
    console = Console(width=width, record=True, file=io.StringIO(), force_terminal=colours, color_system=system)
    console.print(drawing(digest, console))
    return console.export_text().splitlines()


def digest_of(directory: RunDirectory) -> Digest:
    follower = Follower(directory)
    try:
        return follower.look()
    finally:
        follower.close()


def busy(slow_s: float = 0.0, workers: int = 2) -> Digest:
    directory = new_run()
    with journal(directory) as run, directory.lock():
        started(run, workers=workers)
        run.steps(rows(1, 143, workers, slow_s))
        evaluated(run, 138, 0.9711)
        run.event("suspect", 1, 140, reason="rank 1 (host a) has been silent for 5 s, in forward")
        return digest_of(directory)


def test_the_view_fits_80_columns_and_says_it_all():
    seen = recorded(busy())
    assert max(map(len, seen)) <= 80
    text = "\n".join(" ".join(line.split()) for line in seen)
    for part in (
        "run lenet-digits-1 2 workers local",
        "in runs/lenet-digits-1",
        "62%",
        "step 143 of 230 epoch 6.2 of 10",
        "9 s left",
        "training loss 0.01399 lr 0.05 640 samples/s",
        "evaluated accuracy 0.9711, loss 0.1 at step 138",
        "best accuracy 0.9711 at step 138",
        "data 3 forward 30 backward 45 exchange 12 optimiser 6 rest 4%",
        "step 140: rank 1 (host a) has been silent for 5 s, in forward",
    ):
        assert part in text
    assert re.search(r" \d\d s so far ", text), "14, or more on a busy machine"


def test_without_colours_letters_tell_the_phases_apart():
    bar = next(line.split()[1] for line in recorded(busy(), colours=False) if line.startswith("time"))
    assert bar.lstrip("d").startswith("fff")
    assert set(bar) == set("dfbeo.")


def test_a_slow_worker_is_named_and_an_even_field_is_not():
    directory_slow = "\n".join(recorded(busy(slow_s=0.05)))
    assert "rank 1: " in directory_slow
    assert "more time than the mean" in directory_slow


@pytest.mark.parametrize("workers", [1, 2])
def test_nobody_is_called_slow_when_all_are_alike_or_alone(workers):
    assert "slowest" not in "\n".join(recorded(busy(workers=workers)))


def test_before_the_first_step_the_view_says_what_is_awaited():
    directory = new_run()
    with journal(directory) as run, directory.lock():
        started(run)
        seen = "\n".join(recorded(digest_of(directory)))
        assert re.search(r"^progress  starting: 0 of 2 workers connected, \d+ s *$", seen, re.MULTILINE)


@pytest.mark.parametrize("width", [20, 40, 200])
def test_any_width_is_drawn_within_itself(width):
    assert max(map(len, recorded(busy(), width))) <= width


def test_the_view_says_that_the_run_was_asked_to_stop_until_it_has():
    directory = new_run()
    with journal(directory) as run, directory.lock():
        started(run)
        run.steps(rows(1, 7))
        run.event("stopping")
        seen = recorded(digest_of(directory))
        assert "stopping  after this step; Ctrl-C again stops now" in [line.rstrip() for line in seen]
        run.note(state="stopped")
        assert not any(line.startswith("stopping") for line in recorded(digest_of(directory)))
