"""Exit statuses and what is said on stderr: docs/command-line.md lists them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from monitor._made_runs import whole_run
from volary import errors
from volary.monitor import listing

GUIDE = Path(__file__).parents[2] / "docs" / "command-line.md"


def raising(error):
    def listing(folder):
        raise error

    return listing


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.BadInput("a"), 2),
        (errors.WorkerFailed("a"), 3),
        (errors.WorkerLost("a"), 4),
        (errors.RanksDiffer("a"), 5),
        (errors.NotFinite("a"), 6),
        (errors.VolaryError("a"), 1),
    ],
)
def test_an_error_of_ours_is_its_message_and_its_status(error, status, volary, monkeypatch):
    monkeypatch.setattr(listing, "listing", raising(error))
    said = volary("runs")
    assert (said.status, said.out, said.err) == (status, "", "a\n")
    assert f"\n| {status} |" in GUIDE.read_text()


@pytest.mark.parametrize("where", [["--debug", "runs"], ["runs", "--debug"]])
def test_debug_shows_the_traceback_and_the_message_still_comes_last(where, volary, monkeypatch):
    monkeypatch.setattr(listing, "listing", raising(errors.BadInput("the sentence")))
    said = volary(*where)
    assert said.err.startswith("Traceback (most recent call last)")
    assert said.err.endswith("\nthe sentence\n")


def test_an_error_that_nobody_foresaw_is_one_sentence(volary, monkeypatch):
    monkeypatch.setattr(listing, "listing", raising(KeyError("x")))
    said = volary("runs")
    assert (said.status, said.err) == (
        1,
        "unexpected KeyError: 'x'. `volary --debug` with the same words shows where.\n",
    )


def test_a_file_that_cannot_be_written_is_named(volary):
    said = volary("init", "no/such/folder.yaml")
    assert (said.status, said.err) == (1, "no/such/folder.yaml: No such file or directory\n")


def test_ctrl_c_says_nothing(volary, monkeypatch):
    monkeypatch.setattr(listing, "listing", raising(KeyboardInterrupt()))
    said = volary("runs")
    assert (said.status, said.err.strip()) == (130, "")


def test_a_misspelt_verb_is_answered_with_the_nearest(volary):
    said = volary("trian")
    assert said.status == 2
    assert "no verb 'trian'; did you mean 'train'? Known: bench, check, " in said.err


def test_a_misspelt_option_is_answered_with_the_nearest(volary):
    said = volary("runs", "--jsn")
    assert said.status == 2
    assert "--json" in said.err


def test_when_the_reader_of_the_output_goes_away_nothing_is_said():
    whole_run()
    command = subprocess.Popen(
        [sys.executable, "-m", "volary", "runs"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert command.stdout is not None
    command.stdout.close()
    _, err = command.communicate(timeout=60)
    assert (command.returncode, err) == (1, "")
