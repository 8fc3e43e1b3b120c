"""`python -m volary`, and what it says on a Python that is too old."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
OLD = (3, 8)  # older ones have no tests anywhere, and nobody has them
PRETENDING = """
import runpy, sys
sys.version_info = (3, 10, 13, "final", 0)
runpy.run_module("volary", run_name="__main__")
"""


def say(*command: str) -> tuple[int, str]:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=os.environ | {"PYTHONPATH": str(SOURCE)}, check=False
    )
    return done.returncode, done.stderr


def too_old() -> list[str]:
    """Pythons of this machine that are too old."""
    found = [Path("/usr/bin/python3.10"), *sorted(Path.home().glob(".pyenv/versions/3.10.*/bin/python3.10"))]
    return [str(one) for one in found if os.access(one, os.X_OK)]


def test_a_python_that_is_too_old_is_told_in_a_sentence():
    status, said = say(sys.executable, "-c", PRETENDING)
    assert status == 1
    assert re.fullmatch(r"Volary needs Python 3\.11 or newer; this is 3\.10 \(.+\)\n", said)


@pytest.mark.parametrize("file", ["__init__.py", "__main__.py"])
def test_what_comes_before_that_sentence_can_be_read_by_old_pythons(file):
    ast.parse((SOURCE / "volary" / file).read_text(), feature_version=OLD)


@pytest.mark.skipif(not too_old(), reason="no Python 3.10 here")
def test_an_old_python_itself_says_it():
    status, said = say(too_old()[0], "-m", "volary", "--version")
    assert (status, said.partition(";")[0]) == (1, "Volary needs Python 3.11 or newer")


def test_the_module_is_the_command():
    assert say(sys.executable, "-m", "volary", "--version") == (0, "")
