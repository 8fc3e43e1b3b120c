"""The benchmark of the exchange: its rows have what an issue's table is read from."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from volary.lab import LabError
from volary.lab.needs import needs_user_namespace

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
STEPS = {
    "fc-1g": "at most 1.08",
    "resnet-1g-2": "at most 1.10",
    "resnet-1g": "at most 0.85",
    "fc-unlimited": "at most 0.92",
    "resnet-unlimited": "at most 1.00",
}
COLLECTIVES = [
    "two-level",
    "shm-2",
    "shm-4",
    "shm-2-latency",
    "shm-4-latency",
    "broadcast-1g",
    "reduce-scatter-1g",
    "all-gather-1g",
]
FEWER_BYTES = [
    "fc-100m-lossless",
    "fc-100m-lossless-bound",
    "fc-100m-lossy",
    "fc-100m-lossy-powersgd",
    "fc-1g-lossless",
    "fc-1g-lossless-hook",
    "fc-unlimited-lossless",
    "resnet-100m-lossy",
    "lstm-100m-lossless",
    "lstm-100m-lossy",
    "cifar-time-to-accuracy",
]
CHOICES = [f"auto-best-{network}" for network in ("fc", "resnet", "lstm", "gpt", "vgg", "mobilenet")]
FIELDS = ["name", "value", "unit", "peer", "peer_value", "ratio", "wanted", "better"]


def run(*arguments: str, before: tuple[str, ...] = ()) -> str:
    """The script's output; its rows are in rows.json."""
    command = [*before, sys.executable, str(BENCHMARKS / "exchange.py"), "--quick", "--json", "rows.json", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=380).stdout


def rows() -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    return found


def test_every_row_can_be_asked_for():
    command = [sys.executable, str(BENCHMARKS / "exchange.py"), "--only", "everything"]
    said = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300).stderr
    assert "invalid choice: 'everything'" in said
    assert all(name in said for name in [*STEPS, *FEWER_BYTES, *CHOICES, *COLLECTIVES])


@pytest.mark.root
@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="needs root and setpriv, to give up rights",
)
def test_where_there_can_be_no_lab_a_row_is_skipped_with_the_reason():
    bare = ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all")
    said = run("--only", "fc-1g", before=bare)
    assert said.startswith("fc-1g: skipped: a lab needs namespaces of its own, and this process may not make them")
    assert rows() == []


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["resnet-1g-2"])
def test_a_quick_run_of_a_row_has_all_its_fields_and_shows_what_the_link_carried(name):
    try:
        needs_user_namespace()
    except LabError as reason:
        pytest.skip(str(reason))
    said = run("--only", name)
    (row,) = rows()
    assert list(row) == FIELDS
    assert (row["name"], row["unit"], row["better"]) == (name, "s per step", "lower")
    assert row["wanted"] == STEPS[name]
    for field in ("value", "peer_value", "ratio"):
        assert row[field] > 0
    assert "a host has to send 44.7 MB a step" in said
    assert said.count("a host sent 44.") == 2, "both sides sent all of it over the link"
