from __future__ import annotations

from pathlib import Path

import pytest

from volary.monitor.wording import changed, clean, duration, measured, membership, number, place, size, trouble
from volary.run.database.reader import Event
from volary.run.directory import RunDirectory


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"), (8.4, "8 s"), (59.6, "1 min 0 s"), (72, "1 min 12 s"), (7500, "2 h 5 min"), (273_600, "3 d 4 h"),
        (-3, "0 s"), (float("inf"), "unknown"), (float("nan"), "unknown"),
    ],
)  # fmt: skip
def test_a_duration_has_two_units(seconds, words):
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.97331, "0.9733"), (0.000012, "1.2e-05"), (2210.4, "2210"), (1e6, "1000000"), (1e30, "1e+30"), (None, "nan"),
     (float("nan"), "nan"), (float("-inf"), "-inf")],
)  # fmt: skip
def test_a_number_has_four_digits(value, words):
    assert number(value) == words


def test_bytes_have_a_unit():
    assert [size(512), size(1536), size(25 << 20), size(1 << 42)] == ["512 B", "1.5 KiB", "25.0 MiB", "4096.0 GiB"]


def test_the_metric_that_decides_comes_first():
    assert measured({"accuracy": 0.5, "loss": 0.25, "top5": 1}, "loss") == "loss 0.25, accuracy 0.5, top5 1"


def test_what_a_run_says_is_one_line_without_terminal_codes():
    assert clean("a\x1b[2Jb\nc\r\t d") == "a [2Jb c d"


@pytest.mark.parametrize(
    ("kind", "data", "sentence"),
    [
        ("suspect", {"reason": "rank 2 (host b) has been silent for 5 s"}, "rank 2 (host b) has been silent for 5 s"),
        ("suspect", {"reason": "silent"}, "rank 2: silent"),
        ("checkpoint_failed", {"reason": "disk full"}, "no checkpoint: disk full"),
        ("skipped", {"ranks": [0, 1]}, "update skipped, it was not finite on ranks 0, 1"),
        ("skipped", {}, "update skipped, it was not finite"),
        ("warning", {"text": "slow"}, "slow"),
    ],
)
def test_every_trouble_has_a_sentence(kind, data, sentence):
    assert trouble(Event(1, 0.0, 0, 2, 411, kind, data)) == f"step 411: {sentence}"


def test_a_run_is_called_by_its_name_where_that_is_enough():
    here = Path.cwd()
    assert RunDirectory(here / "runs" / "a").argument == "a"
    assert RunDirectory("other/a").argument == "other/a"
    assert RunDirectory("/elsewhere/a").argument == "/elsewhere/a"
    assert place(here / "runs" / "a") == "runs/a"


def test_a_changed_setting_is_shown_as_it_is_written():
    event = Event(1, 0.0, 1, None, 46, "changed", {"setting": "train.epochs", "was": 3.0, "now": 4.0})
    assert changed(event) == "step 46: train.epochs is 4 from here on; it was 3"


def test_shares_that_changed_are_named_with_those_before():
    event = Event(1, 0.0, 0, 0, 18, "balanced", {"samples": [17, 47], "was": [32, 32]})
    assert membership(event) == "by their speed, workers have 17, 47 samples of each batch; before 32, 32"
