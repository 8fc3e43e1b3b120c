"""The benchmark of the step: its rows have what an issue's table is read from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "step_overhead.py"
NAMES = ["lenet-1", "lenet-2", "resnet18-1", "resnet18-2", "many-tensors-2"]
FIELDS = ["name", "value", "unit", "peer", "peer_value", "ratio", "wanted", "better"]


def run(*arguments: str) -> list[dict[str, object]]:
    """The rows that the script writes into its file."""
    subprocess.run(
        [sys.executable, str(SCRIPT), "--quick", "--json", "rows.json", *arguments],
        check=True,
        capture_output=True,
        timeout=400,
    )
    rows: list[dict[str, object]] = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    return rows


@pytest.mark.slow
@pytest.mark.timeout(450)
def test_a_quick_run_writes_every_row_with_all_its_fields():
    rows = run()
    assert [row["name"] for row in rows] == NAMES
    for row in rows:
        assert list(row) == FIELDS
        assert (row["unit"], row["better"]) == ("s per step", "lower")
        assert row["value"] > 0
        assert row["peer_value"] > 0
        assert row["ratio"] > 0
    assert [row["wanted"] for row in rows] == [*["at most 1.03", "at most 1.00"] * 2, "at most 1.00"]


@pytest.mark.slow
def test_only_runs_one_row():
    assert [row["name"] for row in run("--only", "lenet-2")] == ["lenet-2"]
