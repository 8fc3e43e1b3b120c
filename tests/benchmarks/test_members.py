"""The benchmark of lost workers: how soon the others train on, and what being able to costs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "members.py"


@pytest.mark.slow  # runs of four workers, twice and more often, and torchrun's
@pytest.mark.parametrize(
    ("row", "found"),
    [(one, [one]) for one in ("recovery", "recovery-spare", "calm", "calm-sharded")]
    + [("balance", ["balance", "balance-bound"])],
)
def test_it_has_rows_for_a_killed_worker_for_none_and_for_unequal_ones(row, found):
    command = [sys.executable, str(SCRIPT), "--quick", "--only", row, "--json", "rows.json"]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=900)
    rows = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    assert [one["name"] for one in rows] == found
    assert min(one[figure] for one in rows for figure in ("value", "peer_value", "ratio")) > 0
