"""The benchmark of a device: what it does without one, and its turns, which work on the processor as well."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2])
def test_workers_take_turns_with_a_hand_written_loop(size, tmp_path):
    work = {
        "network": "softmax", "source": "digits", "batch_size": 8, "size": size, "device": "cpu",
        "folder": str(tmp_path), "pairs": 2, "turn_s": 0.01,
    }  # fmt: skip
    program = str(BENCHMARKS / "_gpu_turns.py")
    ranks = [
        subprocess.Popen([sys.executable, program, json.dumps(work | {"rank": rank})], start_new_session=True)
        for rank in range(size)
    ]
    assert [rank.wait(200) for rank in ranks] == [0] * size
    found = json.loads((tmp_path / "turns.json").read_text(encoding="utf-8"))
    assert min(found["ours"], found["theirs"], found["ratio"]) > 0


@pytest.mark.slow
def test_a_codec_is_measured_on_another_device():
    command = [sys.executable, str(BENCHMARKS / "gpu.py"), "--quick", "--device", "cpu", "--only", "bf16-gpu"]
    subprocess.run([*command, "--json", "rows.json"], check=True, capture_output=True, timeout=300)
    (row,) = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    assert (row["name"], row["unit"], row["wanted"]) == ("bf16-gpu", "ms", "for information")
    assert min(row["value"], row["peer_value"], row["ratio"]) > 0
