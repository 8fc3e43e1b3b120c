"""`volary lab`: what it accepts, says and returns. What a lab does is in tests/lab."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from volary.cli.lab import _training_verb
from volary.lab import LabError
from volary.lab.needs import needs_user_namespace


@pytest.fixture
def possible():
    try:
        needs_user_namespace()
    except LabError as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--rate", "fast", "--", "true"], "rate is 'fast'; accepted: 1kbit"),
        (["--slow", "2", "--", "true"], "--slow is '2'; accepted: HOST:RATE, as in 2:50mbit"),
        (["--slow", "2:1mbit", "--", "true"], "slow names host 2; accepted: 0 to 1"),
        (["--groups", "2", "--hosts", "3", "true"], "groups is 2 with 3 hosts"),
        (["--at", "10s:cut:9", "--", "true"], "there is no host 9"),
        (["--at", "soon", "--", "true"], "at is 'soon'; accepted: SECONDSs:cut:HOST"),
        (["--log-dir", "logs", "volary", "train", "s.yaml"], "--log-dir: a run keeps its workers' output itself"),
        (["--wrong"], "No such option"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_made(arguments, sentence, volary):
    said = volary("lab", *arguments)
    assert (said.status, said.out) == (2, "")
    assert sentence in said.err


@pytest.mark.parametrize(
    ("command", "verb"),
    [
        (["volary", "train", "s.yaml", "a=b"], ("train", ["s.yaml", "a=b"])),
        (["/opt/bin/volary", "resume", "it"], ("resume", ["it"])),
        (["python3", "-m", "volary", "train", "s.yaml"], ("train", ["s.yaml"])),
        (["volary", "show", "it"], None),
        (["python", "train.py"], None),
        ([], None),
    ],
)
def test_volarys_own_training_is_recognised(command, verb):
    assert _training_verb(command) == verb


@pytest.mark.root
def test_a_command_runs_as_ranks_and_its_options_are_its_own(possible, volary):
    said = volary("lab", "--hosts", 2, "--procs", 2, "sh", "-c", "echo $RANK of $WORLD_SIZE on $(hostname)")
    assert said.status == 0
    assert sorted(said.out.splitlines()) == ["0 of 4 on h0", "1 of 4 on h0", "2 of 4 on h1", "3 of 4 on h1"]


@pytest.mark.root
def test_the_status_is_that_of_the_rank_that_failed(possible, volary):
    said = volary("lab", "--hosts", 3, "--log-dir", "logs", "--", "sh", "-c", "echo $RANK; [ $RANK != 2 ] || exit 9")
    assert (said.status, said.out) == (9, "")
    assert said.err == "rank 2 ended with status 9; its output: logs/rank-2.log\n"
    assert Path("logs/rank-2.log").read_text() == "2\n"


@pytest.mark.root
def test_the_time_can_be_bounded_and_changes_are_told(possible, volary):
    said = volary("lab", "--timeout", 0.3, "--at", "100ms:cut:1", "--", "sleep", 60)
    assert (said.status, said.err) == (124, "0.1 s: link of host 1 cut\nthe time was over\n")


@pytest.mark.slow
@pytest.mark.root
def test_without_a_command_the_links_are_measured(possible, volary):
    said = volary("lab", "--rate", "200mbit")
    assert said.status == 0
    assert re.search(r"^h0 to h1 +\d+\.\d +200mbit +0\.\d{3}$", said.out, re.MULTILINE)
    assert re.search(r"^both ways +\d+\.\d +400mbit +0\.\d{3}$", said.out, re.MULTILINE)


@pytest.mark.root
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_lab_ends_its_ranks_and_returns_130(possible, number):
    command = [sys.executable, "-m", "volary", "lab", "--", "sh", "-c", "echo on $RANK; sleep 600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as lab:
        assert lab.stdout.readline().startswith("on ")
        lab.send_signal(number)
        assert lab.wait(60) == 130


@pytest.mark.root
@pytest.mark.parametrize("option", ["--ui", "--dry-run"])
def test_an_option_that_a_lab_has_no_use_for_is_refused(possible, volary, option):
    Path("session.yaml").write_text("network: softmax\ndata: digits\n")
    said = volary("lab", "--", "volary", "train", "session.yaml", option)
    assert said.status == 2
    assert f"{option} is for `volary train` alone" in said.err


@pytest.mark.slow
@pytest.mark.root
def test_volary_train_trains_on_all_hosts(possible, volary):
    Path("session.yaml").write_text("network: softmax\ndata: {source: digits, batch_size: 30}\ntrain: {steps: 4}\n")
    said = volary("lab", "--hosts", 2, "--rate", "100mbit", "--", "volary", "train", "session.yaml", "--json")
    assert said.status == 0, said.err
    told = json.loads(said.out)
    assert (told["state"], told["step"]) == ("finished", 4)
    assert "2 workers" in said.err
