"""The benchmark of codecs: its rows have what an issue's table is read from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "encoding.py"
FIELDS = ["name", "value", "unit", "peer", "peer_value", "ratio", "wanted", "better"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "wanted"), [("onebit-encode", "at most 3.0"), ("topk-encode", "at most 5")])
def test_a_quick_run_of_a_row_has_all_its_fields(name, wanted):
    command = [sys.executable, str(SCRIPT), "--quick", "--only", name, "--json", "rows.json"]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    (row,) = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    assert list(row) == FIELDS
    assert (row["name"], row["wanted"], row["unit"], row["better"]) == (name, wanted, "ms", "lower")
    assert min(row["value"], row["peer_value"], row["ratio"]) > 0
