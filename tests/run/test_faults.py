"""Every write, sync, rename and removal fails, dies or loses its power once; what is taken for whole is whole."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SWEEP = Path(__file__).with_name("_sweep.py")


@pytest.mark.parametrize(
    ("operation", "at_least"),
    [
        pytest.param("create", 10, marks=pytest.mark.slow),
        ("save", 9),
        ("save-again", 11),
        ("prune", 12),
        ("save-together", 7),
        ("save-together-second", 2),
        ("verdict", 4),
    ],
)
def test_whatever_call_goes_wrong_what_is_there_is_the_old_or_the_new_one_whole(operation, at_least, tmp_path):
    swept = subprocess.run(
        [sys.executable, str(SWEEP), operation, str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    assert swept.returncode == 0, swept.stderr
    # as many calls in every mode: a sweep that ended early would have looked at fewer
    assert len(set(json.loads(swept.stdout))) == 1
    assert min(json.loads(swept.stdout)) >= at_least
