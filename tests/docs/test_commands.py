"""Every command line of README and docs/ is run as it stands there; trainings and measurements are cut short."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from docs._pages import CHECKOUT, Block, every
from docs.conftest import Shell, interrupt

README = CHECKOUT / "README.md"
OTHERS = {"make", "sqlite3", "mpirun"}  # programs that come neither with Volary nor with bash
TRAINS = re.compile(r"(volary train \S+\.yaml)(?! --help)")
SHORTENED = [
    (TRAINS, r"\1 train.steps=2 schedule=constant evaluate.every=never"),
    (re.compile(r"(volary submit \S+\.yaml)"), r"\1 --hold"),
    (re.compile(r"(volary sweep \S+\.yaml)(?!.*early)"), r"\1 train.steps=2 schedule=constant evaluate.every=never"),
    (re.compile(r"(volary sweep \S+\.yaml)(?=.*early)"), r"\1 train.steps=3 schedule=constant 'evaluate.every=1 step'"),
    (re.compile(r"(volary\.worker \S+\.yaml)"), r"\1 train.steps=2 schedule=constant evaluate.every=never"),
    (re.compile(r"(volary bench collectives)"), r"\1 --sizes 1kb --time 1"),
    (re.compile(r"^make "), f"make --dry-run -C {CHECKOUT} "),
]


def _lines() -> dict[str, Block]:
    """Each distinct command, with the first block that has it."""
    found: dict[str, Block] = {}
    for block in every("sh", "console"):
        for command in block.commands():
            found.setdefault(re.sub(r"\s+", " ", re.sub(r"\s+#.*", "", command)).strip(), block)
    return found


def _parameter(command: str, block: Block) -> object:
    takes_long = re.search(
        r"volary(\.worker| train| caffe train| launch| resume| stop| sweep| tune-lr| check| bench| evaluate| predict|"
        r" data| doctor$| export.*(pt2|--caffe)| caffe import| caffe show \S+ --shape)",
        command,
    )
    # seconds each; README's resume is run always, which trains first. Servers and `auto` train in tests/train, and
    # tests/cli/test_caffe.py has Caffe's verbs; of weights that were exported one is run
    like_another = block.page != README or "resume" not in command
    marks = [pytest.mark.slow] if takes_long and like_another else []
    return pytest.param(command, block, id=f"{block.page.name}: {command}", marks=marks)


@pytest.mark.parametrize(
    ("command", "block"),
    [
        _parameter(*pair)
        for pair in _lines().items()
        if not re.search("volary (join|leave|invite|gate|relay) ", pair[0])
    ],
)
def test_a_command_does_what_the_page_says(command: str, block: Block, shell: Shell, tmp_path: Path) -> None:
    interpreter = "zsh" if "completion zsh" in command else "bash"
    needs = OTHERS & {command.split()[0], "mpirun" if "engine=mpi" in command else ""}
    for program in {interpreter, *needs}:
        if not shutil.which(program, path=f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"):
            pytest.skip(f"there is no {program} here")
    if command.startswith("volary init"):
        (tmp_path / "session.yaml").unlink()
    if command.startswith("volary resume"):
        interrupt(tmp_path)
    for pattern, replacement in SHORTENED:
        command = pattern.sub(replacement, command)
    said = shell(f"set -e\n{block.marks.get('before', '')}\n{command}", interpreter)
    assert said.status == 0, f"{command}\n{said.out}{said.err}"
