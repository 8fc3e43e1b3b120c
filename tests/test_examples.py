"""Files of examples/ run as they are started; test_example_pairs.py compares what one process and two workers learn."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
EXAMPLES, README = CHECKOUT / "examples", CHECKOUT / "README.md"


def run(*command: str) -> tuple[str, str]:
    said = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=300)
    assert said.returncode == 0, said.stderr
    return said.stdout, said.stderr


def shape(line: str) -> str:
    """A line of the view without its numbers, which another processor or a busy machine may change."""
    return re.sub(r"(\d+ min )?\d[\d.]*", "N", line)


def test_there_are_sessions_a_solver_with_its_network_a_network_that_is_cut_programs_for_spark_and_pairs_of_scripts():
    sessions = {"digits.yaml", "gpt.yaml", "lstm.yaml", "digits_net.prototxt", "digits_solver.prototxt"}
    files = {*sessions, "cut_autoencoder.py", "ruff.toml"}
    assert {one.name for one in EXAMPLES.iterdir() if one.is_file()} == files
    assert sorted(file.name for file in (EXAMPLES / "spark").glob("*.py")) == [
        "notebook.py",
        "rotation.py",
        "store.py",
        "submit.py",
    ]
    for folder in (one for one in EXAMPLES.iterdir() if one.is_dir() and one.name != "spark"):
        assert sorted(file.name for file in folder.glob("*.py")) == ["distributed.py", "plain.py"]


@pytest.mark.slow  # half a minute; tests/docs runs `make demo`, shorter
def test_the_digits_are_learnt_by_two_workers_to_97_percent_and_the_end_is_what_readme_shows():
    result, view = run("-m", "volary", "train", str(EXAMPLES / "digits.yaml"), "--json")
    assert json.loads(result)["state"] == "finished"
    assert json.loads(result)["metrics"]["accuracy"] >= 0.97
    shown = re.search(r"```text\n(finished .*?)```", README.read_text(), re.DOTALL)[1].splitlines()
    assert list(map(shape, shown)) == list(map(shape, view.splitlines()[-len(shown) :]))


@pytest.mark.slow  # half a minute
def test_a_gpt_learns_the_characters_of_a_text():
    result, _ = run("-m", "volary", "train", str(EXAMPLES / "gpt.yaml"), "--json", "train.epochs=6")
    assert json.loads(result)["metrics"]["perplexity"] < 20, "of 95 characters or so; one that guesses has as many"


@pytest.mark.slow  # a run of two workers
def test_an_autoencoder_above_one_worker_s_budget_trains_on_two():
    program = str(EXAMPLES / "cut_autoencoder.py")
    alone = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=300)
    assert (alone.returncode, alone.stderr) == (1, "5.8 MB are more than 3.0 MB; accepted: more workers\n")
    said, _ = run("-m", "volary", "launch", "strategy.workers=2", program)
    assert "epoch 3: error 0.0043\n2.9 of 5.8 MB on this worker" in said


@pytest.mark.slow  # four processes and two runs
def test_image_classification_is_launched_saves_and_is_resumed_by_its_own_arguments():
    program = str(EXAMPLES / "classification" / "distributed.py")
    launch = ["-m", "volary", "launch", "strategy.workers=2", program, "--batch-size", "101"]
    first, _ = run(*launch, "--epochs", "2", "--save", "kept.pt")
    second, _ = run(*launch, "--epochs", "4", "--resume", "kept.pt")
    alone, _ = run(program, "--batch-size", "101", "--epochs", "4")
    # each worker's loss is of its own share; what is held out, each sees all of
    right = [re.findall(r"epoch \d: .* (\d+\.\d%) right", said) for said in (first + second, alone)]
    assert right[0] == right[1] and len(right[1]) == 4


FIGURES = {  # of what a script prints last: whether it has learnt what its data have in them
    "belief_network": (r"accuracy ([\d.]+)", lambda accuracy: accuracy > 0.95),
    "autoencoder": (r"error ([\d.]+), of what was blanked out ([\d.]+)", lambda error, blank: error < blank / 3),
    "word_vectors": (r"same kind: ([\d.]+)", lambda alike: alike > 0.9),
    "tabular": (", ".join([r"([\d.]+)"] * 6), lambda *shares: sorted(shares)[4:] == sorted([shares[1], shares[4]])),
}


@pytest.mark.slow  # some seconds each
@pytest.mark.parametrize("name", FIGURES)
def test_what_learns_without_a_teacher_and_what_explains_itself_reach_their_figures(name):
    pattern, reached = FIGURES[name]
    said, _ = run(str(EXAMPLES / name / "distributed.py"))
    figures = re.search(pattern, said.splitlines()[-1]).groups()
    assert reached(*map(float, figures)), said
