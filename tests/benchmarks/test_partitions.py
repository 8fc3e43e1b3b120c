"""The benchmark of partitions: its rows have what a table is read from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from volary.lab.needs import needs_user_namespace

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "partitions.py"


def row(name: str, at_most_s: float) -> tuple[dict[str, object], str]:
    """The row of a quick run, and what it printed."""
    command = [sys.executable, str(SCRIPT), "--quick", "--only", name, "--json", "rows.json"]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=at_most_s).stdout
    (found,) = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    return found, said


@pytest.mark.slow  # ten trainings
def test_a_width_above_one_worker_s_budget_trains_and_processor_seconds_are_beside_each_time():
    found, said = row("size-curve", 900)
    assert (found["name"], found["unit"], found["wanted"]) == ("size-curve", "s a step", "for information")
    trained = [line for line in said.splitlines() if "s a step;" in line]
    assert len(trained) == 9 and all("processor seconds" in line for line in trained)
    assert "refused: " in said and "strategy.memory is" in said


@pytest.mark.slow
@pytest.mark.root
def test_a_step_beside_that_of_torch_s_pipeline_has_processor_seconds_and_bytes():
    needs_user_namespace()
    found, said = row("pipeline-torch", 1800)
    assert (found["name"], found["wanted"], found["better"]) == ("pipeline-torch", "at most 0.85", "lower")
    assert "processor seconds a step, all ranks" in said and "torch.distributed.pipelining" in str(found["peer"])
