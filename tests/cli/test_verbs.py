from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from safetensors import safe_open

import volary as volary_itself
from monitor._made_runs import checkpoint, evaluated, journal, new_run, started, whole_run
from volary.cli.command.verbs import names, summary
from volary.session import Session

GUIDE = Path(__file__).parents[2] / "docs" / "command-line.md"


def test_every_file_of_the_folder_is_a_verb():
    assert {"train", "resume", "init", "check", "evaluate", "export", "runs", "show", "doctor", "completion"} <= set(
        names()
    )


@pytest.mark.parametrize("verb", names())
def test_every_verb_explains_itself_in_a_line_and_in_the_guide(verb, volary):
    assert 10 < len(summary(verb)) <= 66
    said = volary(verb, "--help")
    assert said.status == 0
    assert said.out.startswith(f"Usage: volary {verb}")
    assert "--debug" in said.out
    assert f"\n## volary {verb}\n" in GUIDE.read_text()


def test_init_writes_a_session_that_can_be_read_and_overwrites_nothing(volary):
    assert volary("init").status == 0
    assert Session.read("session.yaml").strategy.workers == 2
    Path("session.yaml").write_text("mine")
    said = volary("init")
    assert (said.status, said.err) == (2, "session.yaml exists already; give another name: `volary init FILE`\n")
    assert Path("session.yaml").read_text() == "mine"


def test_check_reports_every_mistake_of_file_and_command_line_at_once(volary):
    Path("s.yaml").write_text("network: lenett\ndata: {source: digits, batch_size: x}\n")
    said = volary("check", "s.yaml", "strategy.wrokers=2")
    assert said.status == 2
    assert said.out == ""
    first, second, third = sorted(said.err.splitlines())
    assert first.startswith("command line: strategy.wrokers: unknown; did you mean 'workers'?")
    assert second.startswith("s.yaml:1:10: network: ")
    assert third.startswith("s.yaml:2:36: data.batch_size: ")


def test_check_of_a_missing_file_names_it(volary):
    said = volary("check", "none.yaml")
    assert said.status == 2
    assert "none.yaml" in said.err


def test_runs_are_a_table_or_json(volary):
    assert volary("runs").out.startswith("no runs in runs/")
    whole_run("a")
    whole_run("b")
    header, first, second = volary("runs").out.splitlines()
    assert header.split() == ["run", "state", "steps", "best", "when"]
    assert first.split()[:5] == ["a", "finished", "46/46", "accuracy", "0.9733"]
    assert second.split()[0] == "b"
    assert [row["name"] for row in json.loads(volary("runs", "--json").out)] == ["a", "b"]
    Path("empty").mkdir()
    assert json.loads(volary("runs", "--folder", "empty", "--json").out) == []


@pytest.mark.parametrize(("folder", "why"), [("nowhere", "there is no such folder"), ("file", "is a file")])
def test_a_folder_of_runs_that_is_none_is_refused(volary, folder, why):
    Path("file").touch()
    said = volary("runs", "--folder", folder)
    assert (said.status, said.out) == (2, "")
    assert said.err == f"--folder {folder}: {why}; accepted: a folder of runs, by default runs\n"


@pytest.mark.parametrize("verb", names())
def test_no_help_is_cut_short(verb, volary):
    usage, *lines = volary(verb, "--help").out.splitlines()
    assert not [line for line in lines if line.endswith("...")], usage


def test_show_tells_about_a_run_by_name_and_by_path(volary):
    directory = whole_run()
    told = volary("show", "lenet-digits-1").out
    for part in ("finished", "lenet on digits", "step 46 of 46", "0.9733", "optimiser", "there", "runs/lenet-digits-1"):
        assert part in told
    assert volary("show", directory.path).out == told
    assert "whole" in volary("show", "lenet-digits-1", "--verify").out


def test_show_of_a_run_without_anything_is_short_and_whole(volary):
    new_run("empty")
    said = volary("show", "empty")
    assert said.status == 0
    assert "nothing has started yet" in said.out
    assert json.loads(volary("show", "empty", "--json").out)["metrics"] == []


def test_show_of_a_run_whose_driver_is_gone_says_how_to_go_on(volary):
    directory = new_run("gone")
    with journal(directory) as run:
        started(run)
        run.event("suspect", 1, 7, reason="rank 1 (host a) has been silent for 5 s")
        evaluated(run, 7, float("nan"))
        run.note(message="rank 1 (host a) was lost")
    said = volary("show", "gone")
    for part in ("lost", "volary resume gone", "silent for 5 s", "nan", "rank 1 (host a) was lost"):
        assert part in said.out
    assert said.out.count("volary resume") == 1
    assert json.loads(volary("show", "gone", "--json").out)["metrics"][0]["values"]["accuracy"] is None


def test_a_run_that_is_not_there_is_refused_and_the_list_is_named(volary):
    said = volary("show", "nowhere")
    assert said.status == 2
    assert said.err == "no run at nowhere and none called 'nowhere' in runs/; `volary runs` lists what there is\n"


@pytest.mark.parametrize(
    ("which", "step"),
    [((), 23), (("--checkpoint", "best"), 23), (("--checkpoint", "last"), 46), (("--checkpoint", "46"), 46)],
)
def test_export_copies_the_weights_of_the_checkpoint_that_is_meant(which, step, volary):
    directory = whole_run()
    with journal(directory) as run:
        run.note(classes=10, input_shape="1,28,28")
    checkpoint(directory, 23, 0.99)
    said = volary("export", "lenet-digits-1", *which, "-o", "weights.safetensors")
    assert said.status == 0
    with safe_open("weights.safetensors", "numpy") as file:
        assert bytes(file.get_tensor("w")) == b"weights of %d" % step
        labels = file.metadata()
    assert f"step {step}" in said.out
    assert labels == {
        "format": "pt",
        "network": "{name: lenet, input_shape: null, classes: null, weights: null}",
        "step": str(step),
        "classes": "10",
        "input_shape": "1,28,28",
        "run": "lenet-digits-1",
        "session": Session.read(directory.session).digest(),
        "volary": volary_itself.__version__,
    }


def test_the_best_checkpoint_of_a_loss_is_the_one_with_the_least(volary):
    directory = whole_run()
    with journal(directory) as run:
        run.note(higher_is_better=False)
    assert json.loads(volary("export", "lenet-digits-1", "--json").out)["step"] == 23


@pytest.mark.parametrize("words", [("export", "lenet-digits-1"), ("compare", "lenet-digits-1", "lenet-digits-1")])
def test_a_run_without_its_session_says_that_it_is_to_be_put_there(words, volary):
    directory = whole_run()
    directory.session.unlink()
    said = volary(*words)
    sentence = f"{directory.session} cannot be read (No such file or directory); put the run's own session.yaml there\n"
    assert (said.status, said.err) == (2, sentence)


def test_export_writes_no_weights_into_a_file_whose_ending_means_something_else(volary):
    whole_run("a")
    said = volary("export", "a", "-o", "it.onxx")
    sentence = "--output is it.onxx; accepted: a file that ends in .safetensors, .pt2 or .onnx\n"
    assert (said.status, said.err) == (2, sentence)


def test_export_overwrites_nothing(volary):
    whole_run()
    assert volary("export", "lenet-digits-1").status == 0
    said = volary("export", "lenet-digits-1")
    assert (said.status, said.err) == (
        2,
        "lenet-digits-1-step-46.safetensors exists already; choose another with --output\n",
    )


NOWHERE = "/proc/nowhere"  # not to be written by anybody, root included


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["export", "a", "--output", f"{NOWHERE}/w.safetensors"], "--output"),
        (["report", "a", "--out", f"{NOWHERE}/r.html"], "--out"),
        (["trace", "a", "--out", f"{NOWHERE}/t.json"], "--out"),
        (["data", "check", "session.yaml", "--list", f"{NOWHERE}/damaged"], "--list"),
        (["data", "pack", "session.yaml", NOWHERE], "FOLDER"),
        (["lab", "--log-dir", NOWHERE, "--", "true"], "--log-dir"),
        (["init", f"{NOWHERE}/session.yaml"], "FILE"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_anything_else_is_done(words, option, volary):
    whole_run("a")
    volary("init")
    said = volary(*words)
    assert (said.status, said.out) == (2, "")
    assert said.err.startswith(f"{option}: {NOWHERE} cannot be written: ")
    assert "; accepted: " in said.err


def test_export_refuses_a_damaged_checkpoint_and_takes_the_newest_whole_one_for_last(volary):
    directory = whole_run()
    (directory.checkpoints / "step-00000046" / "model.safetensors").write_bytes(b"flipped")
    said = volary("export", "lenet-digits-1", "--checkpoint", "46")
    assert said.status == 2
    assert "damaged" in said.err
    said = volary("export", "lenet-digits-1", "--checkpoint", "last")
    assert said.status == 0
    assert "step 23" in said.out
    assert said.err.startswith("warning: ")


@pytest.mark.parametrize("which", ["7", "first", "-1"])
def test_a_checkpoint_that_is_not_there_is_refused_with_those_that_are(which, volary):
    whole_run()
    said = volary("export", "lenet-digits-1", f"--checkpoint={which}")
    assert (said.status, said.err) == (
        2,
        f"--checkpoint is {which!r}; accepted: best, last, or one of the steps 23, 46\n",
    )


def test_without_measurements_the_newest_checkpoint_is_exported_and_best_is_refused(volary):
    directory = new_run()
    for step in (1, 2):
        checkpoint(directory, step, None)
    assert json.loads(volary("export", "lenet-digits-1", "--json").out)["step"] == 2
    said = volary("export", "lenet-digits-1", "--checkpoint", "best", "-o", "x")
    assert said.status == 2
    assert "has a metric" in said.err


def test_doctor_tells_what_is_here_and_what_works(volary):
    said = volary("doctor")
    assert said.status == 0
    for part in (
        "cores",
        "shared memory",
        "torch",
        "gloo",
        "train.device=cuda",
        "strategy.codec: auto, bf16",
    ):
        assert part in said.out
    told = json.loads(volary("doctor", "--json").out)
    assert told["machine"]["usable_cores"] == sorted(os.sched_getaffinity(0))
    assert {finding["works"] for finding in told["findings"]} <= {"yes", "no", "limited"}
    assert "lenet" in told["plugins"]["network"]["built"]


def test_doctor_names_the_sockets_of_a_live_run_and_those_that_others_can_reach(volary):
    directory = new_run()
    with journal(directory) as run:
        run.note(state="running", pids=[os.getpid()])
    assert "not running" in volary("doctor", directory.path).out
    with (
        directory.lock(),
        socket.create_server(("127.0.0.1", 0)) as inside,
        socket.create_server(("0.0.0.0", 0)) as outside,
    ):
        said = volary("doctor", directory.path)
        told = json.loads(volary("doctor", directory.path, "--json").out)
        ports = inside.getsockname()[1], outside.getsockname()[1]
    reach = {listener["port"]: listener["beyond_loopback"] for listener in told["listeners"]}
    assert [reach[port] for port in ports] == [False, True]
    assert said.out.count("BEYOND LOOPBACK") == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_its_script(shell, volary):
    assert "_VOLARY_COMPLETE" in volary("completion", shell).out
