"""The benchmark of memory: what a worker holds above torch, beside one of DistributedDataParallel."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "memory.py"
NETWORK_MIB = 131


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="the system does not tell of shared memory")
def test_a_worker_holds_parameters_gradients_and_momentum_and_no_more_than_the_peer():
    command = [sys.executable, str(SCRIPT), "--quick", "--only", "memory-2-hosts", "--json", "rows.json"]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    (row,) = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    assert (row["name"], row["unit"], row["better"]) == ("memory-2-hosts", "MiB", "lower")
    assert row["value"] > 3 * NETWORK_MIB
    assert 0 < row["ratio"] <= 1
