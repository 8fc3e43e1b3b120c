"""The benchmark of own loops: its rows have what an issue's table is read from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "own_loop.py"
FIELDS = ["name", "value", "unit", "peer", "peer_value", "ratio", "wanted", "better"]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "unit", "peer", "wanted"),
    [
        ("lenet-1", "s per step", "a session's loop", "at most 1.01"),
        ("lenet-ddp-2", "s per step", "DDP, tuned", "at most 1.00"),
        ("feed", "s per batch", "the loader alone", "at most 1.01"),
    ],
)
def test_a_quick_run_of_a_row_has_all_its_fields(name, unit, peer, wanted):
    command = [sys.executable, str(SCRIPT), "--quick", "--json", "rows.json", "--only", name]
    subprocess.run(command, check=True, capture_output=True, timeout=280)
    (row,) = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    assert list(row) == FIELDS
    assert (row["name"], row["unit"], row["peer"], row["wanted"]) == (name, unit, peer, wanted)
    assert row["better"] == "lower"
    for field in ("value", "peer_value", "ratio"):
        assert row[field] > 0
