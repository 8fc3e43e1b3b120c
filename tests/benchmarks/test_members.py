"""The benchmark of lost workers: how soon the others train on, and what being able to costs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "members.py"


@pytest.mark.slow  # runs of four workers, twelve times, and torchrun's
def test_it_has_rows_for_a_killed_worker_for_none_and_for_unequal_ones():
    command = [sys.executable, str(SCRIPT), "--quick", "--json", "rows.json"]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=1800)
    recovery, spare, calm, balance, bound = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    names = [one["name"] for one in (recovery, spare, calm, balance, bound)]
    assert names == ["recovery", "recovery-spare", "calm", "balance", "balance-bound"]
    assert min(spare["value"], spare["peer_value"]) > 0
    assert min(balance["ratio"], bound["ratio"]) > 0
    assert min(recovery["value"], recovery["peer_value"], calm["value"], calm["peer_value"]) > 0
