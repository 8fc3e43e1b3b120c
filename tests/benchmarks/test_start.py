"""The benchmark of starts: its rows, seconds and CPU seconds, against torchrun."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "start.py"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "unit"), [("start-1", "s"), ("start-1-cpu", "CPU s")])
def test_a_quick_run_of_a_row_compares_both_commands(name, unit):
    command = [sys.executable, str(SCRIPT), "--quick", "--only", name, "--json", "rows.json"]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    (row,) = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    assert (row["name"], row["unit"], row["better"]) == (name, unit, "lower")
    assert min(row["value"], row["peer_value"], row["ratio"]) > 0
