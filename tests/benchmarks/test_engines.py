"""The benchmark of engines: its rows have what an issue's table is read from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "engines.py"
FIELDS = ["name", "value", "unit", "peer", "peer_value", "ratio", "wanted", "better"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "unit", "peer"), [("kill-torchrun", "s", "torchrun"), ("memory-torchrun", "MB", "the bound")]
)
def test_a_quick_run_of_a_row_has_all_its_fields(name, unit, peer):
    command = [sys.executable, str(SCRIPT), "--quick", "--only", name, "--json", "rows.json"]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    (row,) = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    assert list(row) == FIELDS
    assert (row["name"], row["unit"], row["peer"], row["better"]) == (name, unit, peer, "lower")
    assert min(row["value"], row["peer_value"], row["ratio"]) > 0


@pytest.mark.slow
def test_an_engine_that_is_not_here_is_left_out_with_its_sentence(monkeypatch):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    command = [sys.executable, str(SCRIPT), "--quick", "--only", "kill-slurm"]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    assert said.startswith("kill-slurm: left out: there is no srun here")
