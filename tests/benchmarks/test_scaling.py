"""The benchmark of scaling: what a driver takes for its workers' beats, meeting and roster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "scaling.py"


@pytest.mark.slow
def test_a_quick_run_has_a_row_for_all_that_workers_say_to_a_driver():
    command = [sys.executable, str(SCRIPT), "--quick", "--json", "rows.json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    rows = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    assert [row["name"] for row in rows] == ["beats-64", "come-64", "share-64", "roster-64"]
    assert all(0 <= row["ratio"] < 1 for row in rows)
    assert "roster-16: " in done.stdout
