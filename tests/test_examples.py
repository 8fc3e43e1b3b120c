"""Every file of examples/ runs, as its first lines say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
EXAMPLES, README = CHECKOUT / "examples", CHECKOUT / "README.md"
COMMANDS = {
    "digits.yaml": ["-m", "volary", "train", str(EXAMPLES / "digits.yaml"), "--json"],
    "plain_loop.py": [str(EXAMPLES / "plain_loop.py")],
    "own_loop.py": [str(EXAMPLES / "own_loop.py")],
}


def run(name: str) -> tuple[str, str]:
    said = subprocess.run([sys.executable, *COMMANDS[name]], capture_output=True, text=True, timeout=300)
    assert said.returncode == 0, said.stderr
    return said.stdout, said.stderr


def shape(line: str) -> str:
    """A line of the view without its numbers, which another processor or a busy machine may change."""
    return re.sub(r"(\d+ min )?\d[\d.]*", "N", line)


def test_there_is_a_command_for_every_example():
    assert {file.name for file in EXAMPLES.iterdir() if file.suffix in (".py", ".yaml")} == set(COMMANDS)


@pytest.mark.slow  # half a minute; tests/docs runs `make demo`, shorter
def test_the_digits_are_learnt_by_two_workers_to_97_percent_and_the_end_is_what_readme_shows():
    result, view = run("digits.yaml")
    assert json.loads(result)["state"] == "finished"
    assert json.loads(result)["metrics"]["accuracy"] >= 0.97
    shown = re.search(r"```text\n(finished .*?)```", README.read_text(), re.DOTALL)[1].splitlines()
    assert list(map(shape, shown)) == list(map(shape, view.splitlines()[-len(shown) :]))


@pytest.mark.parametrize("name", ["plain_loop.py", "own_loop.py"])
def test_a_loop_of_one_s_own_learns_with_and_without_volary(name):
    result = next(line for line in run(name)[0].splitlines() if line.startswith("loss of "))
    losses = [float(loss) for loss in re.findall(r"\d\.\d{4}", result)]
    assert len(losses) == (1 if name == "plain_loop.py" else 2)
    assert all(loss < 0.5 for loss in losses)


def test_the_two_loops_differ_only_in_the_lines_that_say_so():
    plain, own = (EXAMPLES.joinpath(name).read_text().splitlines() for name in ("plain_loop.py", "own_loop.py"))
    new = [line for line in own if line not in plain and line.strip() and not line.startswith(('"""', "import "))]
    marked = [line for line in new if re.search(r"# \(\d\)", line)]
    assert len(marked) == 3
    # beside these: the function's new argument and result, and what is printed at the end
    assert len(new) - len(marked) <= 6
