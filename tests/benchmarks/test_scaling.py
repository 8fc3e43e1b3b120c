"""The benchmark of scaling: what a driver takes for its workers, and what a step of more hosts is expected to cost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from volary.lab import LabError
from volary.lab.needs import needs_user_namespace

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["beats", "come", "share", "roster"])
def test_a_quick_run_has_a_row_for_all_that_workers_say_to_a_driver(name):
    command = [sys.executable, str(BENCHMARKS / "scaling.py"), "--quick", "--only", name, "--json", "rows.json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    (row,) = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    assert row["name"] == f"{name}-64"
    assert 0 <= row["ratio"] < 1
    assert f"{name}-16: " in done.stdout


def test_what_is_fitted_is_as_sure_beyond_the_measurements_as_they_lie_on_it(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from _scaling_steps import TERMS, Fit

    hosts = (2, 3, 4, 8, 16)
    exact = Fit(TERMS["allreduce"], {n: 5.0 + 2.0 * (n - 1) + 3.0 * (n - 1) / n for n in hosts})
    assert exact.at(1024) == pytest.approx(5 + 2046 + 3, rel=1e-3)
    assert exact.within(1024) == pytest.approx(0, abs=1e-6)
    noisy = Fit(TERMS["factors"], {n: 5.0 + 2.0 * (n - 1) + (-1) ** n for n in hosts})
    assert 0 < noisy.within(8) < noisy.within(64) < noisy.within(1024)


@pytest.mark.root
@pytest.mark.slow  # a lab with three processes a host
def test_what_a_step_over_servers_costs_is_counted_with_the_server_beside_each_worker(monkeypatch):
    try:
        needs_user_namespace()
    except LabError as reason:
        pytest.skip(str(reason))
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import _scaling_steps

    monkeypatch.setattr(_scaling_steps, "QUICK_HOSTS", (2,))
    (turn,) = _scaling_steps._over_servers(quick=True).values()
    assert min(turn.seconds, turn.cpu_s) > 0
    parameters = 784 * 512 + 512 + 512 * 10 + 10
    assert turn.payload_bytes == pytest.approx(4 * parameters, rel=0.01)
