"""The benchmark of faults: its rows have what docs/faults.md reads from them, and its schedules see what is left."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "faults.py"
FIELDS = ["name", "value", "unit", "peer", "peer_value", "ratio", "wanted", "better"]


@pytest.fixture
def checks(monkeypatch):
    """The module of what is looked at after a schedule of faults."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    return importlib.import_module("_fault_checks")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["worker-kill", "driver-kill"])
def test_a_quick_run_of_a_row_has_all_its_fields(name):
    command = [sys.executable, str(SCRIPT), "--quick", "--only", name, "--json", "rows.json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    (row,) = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    assert list(row) == FIELDS
    assert (row["name"], row["peer"], row["unit"], row["better"]) == (name, "the bound", "s", "lower")
    assert min(row["value"], row["peer_value"], row["ratio"]) > 0
    assert f"{name}: median " in done.stdout


@pytest.mark.slow
def test_a_schedule_is_played_to_its_end_and_leaves_nothing_of_itself():
    command = [sys.executable, str(SCRIPT), "--schedules", "1", "--seed", "3", "--json", "rows.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    assert (row["name"], row["value"], row["unit"]) == ("schedules", 0, "broken of 1")
    assert [path.name for path in Path().iterdir()] == ["rows.json"]


def test_what_a_run_has_left_is_found_whatever_it_is(checks):
    Path("run/runs/it/checkpoints").mkdir(parents=True)
    with checks.Traces(Path("run")) as traces:
        assert (traces.left(), traces.processes()) == ([], [])
        Path("run/tmp/scratch").touch()
        Path("run/runs/it/checkpoints/.step-00000020").mkdir()
        command = [sys.executable, "-c", "input()"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, env=os.environ | traces.variables) as process:
            assert [words.split()[0] for words in traces.processes()] == [str(process.pid)]
            traces.kill()
        assert [line.partition(":")[0] for line in traces.left()] == ["left temporary files", "left drafts"]


def test_a_run_that_came_to_something_else_is_told_by_what_its_strategy_promises(checks):
    undisturbed = checks.Result(step=120, weights="a", samples=3840)
    assert undisturbed.differs(undisturbed, exact=True) == []
    assert len(checks.Result(step=119, weights="b", samples=3840).differs(undisturbed, exact=True)) == 2
    assert checks.Result(step=119, weights="b", samples=3840).differs(undisturbed, exact=False) == []
    assert len(checks.Result(step=120, weights="a", samples=3841).differs(undisturbed, exact=False)) == 1
