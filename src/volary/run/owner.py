"""Checks the owner of a file: a session or a run's directory names code to run, and must be this user's or root's."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from volary.errors import RunError

_ROOT = 0
_WRITE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_ANY_BY_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def refuse_foreign(*paths: Path, trust: bool = False) -> None:
    """Raise RunError if one of `paths` belongs to another user than this one and root, unless they are trusted.

    What is not there is somebody else's to report.
    """
    for path in paths:
        if trust or not path.exists() or (owner := _stranger(path.stat())) is None:
            continue
        raise RunError(
            f"{path} belongs to {user_name(owner)}, and you are {user_name(os.geteuid())}: it names code that would be "
            "run as you. If you trust whoever wrote it, say so with --trust"
        )


def require_private(path: Path, *, secret: bool = False) -> None:
    """Raise RunError unless `path` is this user's own, and nobody else may write to it, or, if `secret`, read it."""
    found = path.stat()
    if (owner := _stranger(found)) is not None:
        raise RunError(f"{path} belongs to {user_name(owner)}, and not to {user_name(os.geteuid())}, who trains")
    if not found.st_nlink:  # a file without a name is reached by those who inherit it
        return
    if found.st_mode & _WRITE_BY_OTHERS:
        raise RunError(f"{path} can be written to by other users: chmod go-w {path}")
    if secret and found.st_mode & _ANY_BY_OTHERS:
        raise RunError(f"{path} can be read by other users: chmod go= {path}")


def _stranger(found: os.stat_result) -> int | None:
    return None if os.name != "posix" or found.st_uid in (os.geteuid(), _ROOT) else found.st_uid


def user_name(uid: int) -> str:
    """A user in words: `ada (user 1000)`."""
    import pwd

    try:
        return f"{pwd.getpwuid(uid).pw_name} (user {uid})"
    except KeyError:
        return f"user {uid}"
