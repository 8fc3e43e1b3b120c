"""Runs of the command, in this process and as users run it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli._fitting import DATA, FITTING, LOSSES, NETS
from volary.cli.command.main import run

SOURCE = Path(__file__).parents[2] / "src"


@dataclass(frozen=True)
class Said:
    status: int
    out: str
    err: str


@pytest.fixture
def volary(capfd: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """`volary("show", "x")`: the command in this process."""

    def call(*arguments: object) -> Said:
        capfd.readouterr()
        status = run([str(argument) for argument in arguments])
        return Said(status, *capfd.readouterr())

    return call


@pytest.fixture
def fresh() -> Callable[..., Said]:
    """`fresh("-m", "volary", "show", "x")`: a Python of its own."""

    def call(*arguments: str, **environment: str) -> Said:
        variables = os.environ | {"PYTHONPATH": str(SOURCE)} | environment
        done = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, timeout=300, env=variables, check=False
        )
        return Said(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def check(volary: Callable[..., Said]) -> Callable[..., Said]:
    """`check("network=nets.py:Net")`: what is said of a session that fits but for these settings."""
    Path("nets.py").write_text(NETS)
    Path("losses.py").write_text(LOSSES)
    Path("data.py").write_text(DATA)
    Path("s.yaml").write_text(FITTING)
    return lambda *settings: volary("check", "s.yaml", *settings)
