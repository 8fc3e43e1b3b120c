"""A run's session and what it ran on, as they are stored."""

from __future__ import annotations

from pathlib import Path

from volary.run.directory import RunDirectory


def session_text(directory: RunDirectory) -> dict[str, str]:
    """The text of both files; empty for one that cannot be read."""
    return {"session": _text(directory.session), "environment": _text(directory.environment)}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
