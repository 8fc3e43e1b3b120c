"""The benchmark of many workers: its rows have what a table is read from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "many.py"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["many-2", "many-server-2"])
def test_a_quick_run_of_a_row_compares_both_ways(name):
    command = [sys.executable, str(SCRIPT), "--quick", "--only", name, "--json", "rows.json"]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    (row,) = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    assert (row["name"], row["unit"], row["peer"], row["better"]) == (name, "ms per step", "gloo", "lower")
    assert min(row["value"], row["peer_value"], row["ratio"]) > 0
