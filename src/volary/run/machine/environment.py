"""The environment of a run: versions, host, and the commit of the user's code."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import volary

_PACKAGES = ("torch", "numpy", "safetensors", "msgspec", "ruamel.yaml", "pillow")


def versions() -> dict[str, str]:
    """Version by name of what decides a run's numbers; asks the package records, so nothing is imported."""
    found = {"volary": volary.__version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing"
    return found


def commit_of(folder: Path) -> str | None:
    """The git commit of `folder`, with `+changes` if files differ from it; None where there is no repository."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True, timeout=5
        ).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def environment(folder: Path) -> dict[str, Any]:
    """Collect all about this machine and code that a reader of the run may ask later. folder: the user's code."""
    return {
        "versions": versions(),
        "host": platform.node(),
        "system": platform.platform(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "commit": commit_of(folder),
        "command": sys.argv,
        "process": os.getpid(),
        "folder": str(folder),
    }


def started_by(file: Path) -> int | None:
    """The number of the process that made the run of which `file` has the environment; None if that is not known."""
    with suppress(OSError, ValueError):
        found = json.loads(file.read_text())
        return found.get("process") if isinstance(found, dict) else None
    return None
