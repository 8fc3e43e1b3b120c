"""Verbs import little before they need it: so the command answers quickly, and this can be tested."""

from __future__ import annotations

import json

import pytest

from monitor._made_runs import whole_run

HEAVY = ("torch", "numpy", "rich", "PIL", "safetensors", "psutil", "multiprocessing")
LOOK = f"""
import sys
from volary.cli import main
try:
    main()
finally:
    verbs = " ".join(name for name in sys.modules if name.startswith("volary.cli."))
    print([name for name in {HEAVY!r} if name in sys.modules], verbs, sep="|", file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["check", "wrong.yaml"], 2),
        (["train", "wrong.yaml"], 2),
        (["show", "lenet-digits-1"], 0),
        (["runs"], 0),
        (["export", "lenet-digits-1"], 0),
        (["resume", "nowhere"], 2),
        (["evaluate", "nowhere"], 2),
        (["init", "new.yaml"], 0),
        (["completion", "zsh"], 0),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else str(value),
)
def test_nothing_heavy_is_imported_by(arguments, status, fresh, tmp_path):
    whole_run()
    (tmp_path / "wrong.yaml").write_text("network: lenet\ndata: {source: digits}\noptimizer: {name: sgd, lrr: 3}\n")
    said = fresh("-c", LOOK, *arguments)
    assert (said.status, said.err.splitlines()[-1].split("|")[0]) == (status, "[]"), said.err


@pytest.mark.parametrize("words", ["volary ", "volary sh", "volary show len", "volary train s.yaml optim", "volary --"])
def test_nothing_heavy_is_imported_by_completion(words, fresh):
    whole_run()
    said = fresh(
        "-c",
        LOOK,
        _VOLARY_COMPLETE="bash_complete",
        COMP_WORDS=words,
        COMP_CWORD=str(len(words.split(" ")) - 1),
    )
    assert (said.status, said.err.splitlines()[-1].split("|")[0]) == (0, "[]"), said.err
    assert said.out


def test_help_imports_no_verb(fresh):
    said = fresh("-c", LOOK, "--help")
    imported = set(said.err.splitlines()[-1].split("|")[1].split())
    assert imported == {"volary.cli.command", "volary.cli.command.main", "volary.cli.command.verbs"}


def test_the_module_is_the_command(fresh):
    whole_run()
    said = fresh("-m", "volary", "show", "lenet-digits-1", "--json")
    assert (said.status, json.loads(said.out)["state"]) == (0, "finished")
