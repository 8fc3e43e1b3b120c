"""The files of `engine.bring`: below the working directory, copied to the machines of the processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from volary.errors import SettingError


def require_below(bring: Sequence[str]) -> None:
    """Raise SettingError for what is not below the working directory."""
    for path in bring:
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise SettingError(f"bring has {path!r}; accepted: folders and files below the working directory")


def missing(bring: Sequence[str]) -> str | None:
    """A sentence for the first that is not there; None if all are."""
    absent = next((path for path in bring if not Path(path).exists()), None)
    return absent and f"engine.bring has {absent}, and there is no such file or folder here"
