"""`volary launch`: a program as a run, with its own arguments, prints, exit code and errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from faults._running import SOURCE
from train._own_programs import PROGRAM
from volary.cli.launch import parted


@pytest.mark.parametrize(
    ("line", "settings", "program", "arguments"),
    [
        ("train.py", "", "train.py", ""),
        ("strategy.workers=2 train.py --epochs 3 a=b", "strategy.workers=2", "train.py", "--epochs 3 a=b"),
        ("a=1 b.c=2 -m pkg.mod -m x", "a=1 b.c=2", "-m pkg.mod", "-m x"),
    ],
)
def test_what_follows_the_program_is_the_programs(line, settings, program, arguments):
    assert [*map(list, parted(line.split())[::2])] == [settings.split(), arguments.split()]
    assert parted(line.split())[1] == program


@pytest.mark.parametrize("line", ["", "strategy.workers=2", "-m", "--epochs 3 train.py"])
def test_a_line_without_a_program_is_refused(line):
    with pytest.raises(click.UsageError, match=r"no program; accepted: settings, a program|no option '--epochs'"):
        parted(line.split())


def first_line(rank: int) -> str:
    """The first line that a rank's program printed: torch's gloo prints lines of its own in some releases (2.10)."""
    log = Path(f"runs/it/logs/worker-{rank}.log").read_text()
    return next(line for line in log.splitlines() if not line.startswith("[Gloo]"))


def test_a_program_is_a_run_with_its_arguments_and_its_exit_status(fresh, volary):
    Path("mine.py").write_text(PROGRAM + "sys.exit(7 if worker.rank else 0)\n")
    said = fresh("-m", "volary", "launch", "strategy.workers=2", "run.name=it", "mine.py", "--epochs", "3")
    assert said.status == 7, said.err
    assert said.err.startswith("mine.py ended with status 7\n  rank 1 (host ")
    assert [line[:15] for line in said.out.splitlines() if line.startswith("__main__")] == ["__main__ 0 of 2"]
    firsts = [first_line(rank).partition(": ") for rank in range(2)]
    assert [first[0] for first in firsts] == ["__main__ 0 of 2", "__main__ 1 of 2"]
    assert firsts[0][2] == firsts[1][2], "all ranks have the same model"
    for verb in ("watch", "attach"):
        assert volary(verb, "it").status == 7, verb


def test_a_program_that_cannot_be_compiled_is_one_sentence_and_no_run(volary):
    Path("mine.py").write_text("import volary\ndef f(:\n")
    said = volary("launch", "mine.py")
    assert (said.status, said.out) == (2, "")
    assert said.err == ("mine.py:2: SyntaxError: invalid syntax, in 'def f(:'; accepted: a file that Python compiles\n")
    assert not Path("runs").exists()


FORGETFUL = """\
import torch
import volary

worker = volary.init()
torch.manual_seed(1)
model = torch.nn.Linear(4, 2)
model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
data = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randint(2, (32,)))
for inputs, labels in torch.utils.data.DataLoader(data, batch_size=8):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
torch.save(model.state_dict(), "out.pt")
"""


@pytest.mark.slow  # tests/train has each sentence
def test_a_forgotten_feed_and_a_file_that_all_workers_write_are_told_with_the_line_to_write(fresh):
    Path("mine.py").write_text(FORGETFUL)
    said = fresh("-m", "volary", "launch", "strategy.workers=2", "mine.py")
    assert said.status == 0, said.err
    told = [line.partition("warning: ")[2] for line in said.out.splitlines() if "warning: " in line]
    assert sorted(told) == [
        "all workers learn from the same batches: their losses are equal, bit for bit, in each of the first 3 steps; "
        "accepted: `for batch in worker.feed(loader):`, which gives each worker its share",
        "ranks 0 and 1 both write out.pt (mine.py:13), and spoil what the other has written; accepted: "
        "`if worker.is_first:` before it, or a name with worker.rank in it",
    ]


ASKING = """\
import sys
import volary

worker = volary.init()
print([worker.rank, sys.stdin.read()] if worker.rank else [worker.rank, input(), sys.stdin.read()])
"""


@pytest.mark.slow  # a launcher's own reading
def test_rank_0_reads_what_is_piped_into_the_command_and_the_others_nothing():
    Path("mine.py").write_text(ASKING)
    command = [sys.executable, "-m", "volary", "launch", "strategy.workers=2", "run.name=it", "mine.py"]
    variables = os.environ | {"PYTHONPATH": str(SOURCE)}
    done = subprocess.run(command, input="one\ntwo\n", capture_output=True, text=True, env=variables, check=False)
    assert done.returncode == 0, done.stderr
    assert [first_line(rank) for rank in range(2)] == ["[0, 'one', 'two\\n']", "[1, '']"]


@pytest.mark.slow  # tests/train/test_init.py has the program's ends in one process
def test_a_program_that_ends_before_it_begins_leaves_no_run(fresh):
    Path("mine.py").write_text(PROGRAM)
    said = fresh("-m", "volary", "launch", "mine.py", "--nonsense")
    assert said.status == 2
    assert "mine.py ended with status 2 before it called volary.init(), so there is no run" in said.err
    assert list(Path("runs").iterdir()) == []


@pytest.mark.slow
def test_a_module_and_its_error_are_told_with_the_users_line_first(fresh):
    Path("pack").mkdir()
    Path("pack/__init__.py").touch()
    Path("pack/mine.py").write_text(PROGRAM + "print(1 / 0)\n")
    said = fresh("-m", "volary", "launch", "strategy.workers=2", "-m", "pack.mine", "--epochs", "1")
    assert said.status == 3
    assert said.err.startswith("pack/mine.py:")
    assert "in <module>: ZeroDivisionError: division by zero\n  rank " in said.err
