"""The benchmark of lost workers: how soon the others train on, and what being able to costs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "members.py"


@pytest.mark.slow  # runs of four workers, ten times, and torchrun's
def test_it_has_a_row_for_a_killed_worker_and_one_for_none():
    command = [sys.executable, str(SCRIPT), "--quick", "--json", "rows.json"]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=1800)
    recovery, calm = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    assert (recovery["name"], calm["name"]) == ("recovery", "calm")
    assert min(recovery["value"], recovery["peer_value"], calm["value"], calm["peer_value"]) > 0
