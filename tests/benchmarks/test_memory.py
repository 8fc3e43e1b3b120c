"""The benchmark of memory: what a worker holds above torch, beside one of DistributedDataParallel."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from volary.session import Session
from volary.train import check_session

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


NETWORKS = SCRIPT.with_name("_networks.py")
TRIED = {
    "memory-2-hosts": ({"name": "sgd", "lr": 0.01, "momentum": 0.9}, "data"),
    "sharded-adam-1": ({"name": "adam", "lr": 0.0001}, {"name": "sharded", "level": 1}),
    "sharded-adam-2": ({"name": "adam", "lr": 0.0001}, {"name": "sharded", "level": 2}),
}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="the system does not tell of shared memory")
@pytest.mark.parametrize("name", TRIED)
def test_what_check_says_of_a_worker_is_within_a_tenth_of_what_it_holds_at_most(name):
    command = [sys.executable, str(SCRIPT), "--quick", "--only", name, "--json", "rows.json"]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=900)
    (row,) = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    optimizer, partition = TRIED[name]
    source = {"name": "synthetic", "shape": [3, 32, 32], "classes": 100, "samples": 32}
    session = Session(
        network=f"{NETWORKS}:alexnet_like",
        data={"source": source, "batch_size": 32},
        optimizer=optimizer,
        evaluate={"every": "never"},
        train={"steps": 6, "device": "cpu"},
        strategy={"workers": 2, "partition": partition},
    )
    said = check_session(session).memory
    assert said is not None
    assert said.total / 2**20 == pytest.approx(row["value"], rel=0.1)
