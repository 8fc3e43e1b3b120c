"""Spark as `make engines` installs it, and programs that tests start with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.conftest import spark

__all__ = ["said_by", "spark"]
SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
def said_by(spark: None) -> Callable[..., Any]:
    """Runs a program's text in a process of its own, for 380 s at most; what it prints last, as JSON.

    It may import `_program`.
    """

    def run(program: str, at_most_s: float = 380) -> Any:
        Path("program.py").write_text(program)
        paths = [str(SOURCE), str(Path(__file__).parent), os.environ["PYTHONPATH"]]
        variables = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        variables |= {"PYSPARK_PYTHON": sys.executable}
        ended = subprocess.run(
            [sys.executable, "program.py"],
            env=variables,
            capture_output=True,
            text=True,
            timeout=at_most_s,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout.splitlines()[-1])

    return run
