"""The benchmark of saves: the longest step around one, beside the median step."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "save_stall.py"


@pytest.mark.slow  # two runs of 130 steps of 34 million parameters
def test_it_has_a_row_for_a_session_and_one_for_a_loop_of_ones_own():
    command = [sys.executable, str(SCRIPT), "--quick", "--json", "rows.json"]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=1800)
    rows = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    assert [row["name"] for row in rows] == ["save-stall", "save-stall-own"]
    assert all(row["ratio"] == pytest.approx(row["value"] / row["peer_value"]) for row in rows)
    assert all(row["value"] >= row["peer_value"] > 0 for row in rows)
