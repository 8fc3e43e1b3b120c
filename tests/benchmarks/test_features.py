"""The benchmark of features: its rows, and that none of them is left out of its table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "features.py"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["idle-average", "with-clipping"])
def test_a_row_compares_a_session_with_the_same_one_without_the_feature(name):
    command = [sys.executable, str(SCRIPT), "--quick", "--only", name, "--json", "rows.json"]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    (row,) = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    assert (row["name"], row["peer"], row["unit"]) == (name, "without it", "s per step")
    assert row["wanted"] == ("at most 1.01" if name.startswith("idle") else "for information")
    assert min(row["value"], row["peer_value"], row["ratio"]) > 0
