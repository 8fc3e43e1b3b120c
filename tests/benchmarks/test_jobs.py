"""The benchmark of the queue: its rows have what an issue's table is read from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "jobs.py"


@pytest.mark.slow  # a dozen runs, and a runner that is watched for 20 s
def test_no_step_is_computed_twice_and_the_other_rows_are_there():
    command = [sys.executable, str(SCRIPT), "--quick", "--json", str(Path("rows.json").absolute())]
    subprocess.run(command, check=True, timeout=1800)
    rows = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    assert [row["name"] for row in rows] == ["idle", "queue-1000", "start", "preempt", "sweep-8"]
    assert rows[3]["value"] == 0
