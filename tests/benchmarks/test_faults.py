"""The benchmark of faults: its rows have what the table of docs/faults.md is read from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "faults.py"
FIELDS = ["name", "value", "unit", "peer", "peer_value", "ratio", "wanted", "better"]


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
