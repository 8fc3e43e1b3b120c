"""Questions about a file or folder that each source asks before it is read."""

from __future__ import annotations

from pathlib import Path

from volary.errors import DataError


def existing_file(path: Path, accepted: str) -> Path:
    """`path`, if it is a file that can be read and has something in it; `accepted` ends the sentence otherwise."""
    if not path.exists():
        raise DataError(f"{path}: there is no such file; accepted: {accepted}")
    if not path.is_file():
        raise DataError(f"{path}: not a file; accepted: {accepted}")
    try:
        with path.open("rb") as file:
            something = file.read(1)
    except OSError as problem:
        raise DataError(f"{path}: cannot be read ({problem.strerror}); accepted: {accepted}") from problem
    if not something:
        raise DataError(f"{path}: empty (0 bytes); accepted: {accepted}")
    return path


def existing_folder(path: Path, accepted: str) -> Path:
    """`path`, if it is a folder; `accepted` ends the sentence otherwise."""
    if not path.exists():
        raise DataError(f"{path}: there is no such folder; accepted: {accepted}")
    if not path.is_dir():
        raise DataError(f"{path}: not a folder; accepted: {accepted}")
    return path
