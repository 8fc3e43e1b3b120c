"""The benchmark of engines: its rows have what an issue's table is read from."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
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


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_trainings_that_it_started_end_with_it(number, tmp_path):
    command = [sys.executable, str(SCRIPT), "--quick", "--only", "stop-torchrun"]  # it looks at its peer for 30 s
    script = subprocess.Popen(command, env=os.environ | {"TMPDIR": str(tmp_path)}, stdout=subprocess.DEVNULL)
    try:
        peers = _once_they_train(script, tmp_path)
        script.send_signal(number)
        assert script.wait(60) != 0
        _, left = psutil.wait_procs(peers, timeout=60)
        assert left == []
    finally:
        script.kill()
        script.wait()


def _once_they_train(script: subprocess.Popen[bytes], folder: Path) -> list[psutil.Process]:
    """The processes that the script has started, once both workers of the plain training have done some steps."""
    until = time.monotonic() + 240
    while len(list(folder.glob("*/pid-?"))) < 2:
        assert script.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)
    return psutil.Process(script.pid).children(recursive=True)
