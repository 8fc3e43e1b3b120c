"""The benchmark of the input pipeline: its rows have what an issue's table is read from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "input.py"
FIELDS = ["name", "value", "unit", "peer", "peer_value", "ratio", "wanted", "better"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "wanted", "better"), [("photos-warm", "at least 0.95", "higher"), ("resume", "at most 0.02 s", "lower")]
)
def test_a_quick_run_of_a_row_has_all_its_fields(name, wanted, better):
    command = [sys.executable, str(SCRIPT), "--quick", "--only", name, "--json", "rows.json"]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    (row,) = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    assert list(row) == FIELDS
    assert (row["name"], row["wanted"], row["better"]) == (name, wanted, better)
    assert min(row["value"], row["peer_value"]) > 0
