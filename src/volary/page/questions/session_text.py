"""A run's session and what it ran on, as they are stored."""

from __future__ import annotations

from pathlib import Path

from volary.run.directory import RunDirectory


def session_text(directory: RunDirectory) -> dict[str, str]:
    """The text of both files; empty for one that cannot be read."""
    return {"session": text_of(directory.session), "environment": text_of(directory.environment)}


def text_of(path: Path) -> str:
    """The text of a file; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
