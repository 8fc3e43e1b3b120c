"""The benchmark of consistency models: its rows have what a table is read from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "consistency.py"


@pytest.mark.slow  # two trainings
def test_a_quick_run_of_a_model_says_what_it_costs_in_accuracy():
    command = [sys.executable, str(SCRIPT), "--quick", "--only", "mnist-eager", "--json", "rows.json"]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    (row,) = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    assert (row["name"], row["unit"], row["peer"], row["wanted"]) == ("mnist-eager", "% right", "bsp", "at most 0.5")
    assert row["ratio"] == pytest.approx(row["peer_value"] - row["value"])
