"""Files of figures that were measured once and are kept for later runs, in the user's cache directory."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def path_of(name: str) -> Path:
    """The path of the file called `name`."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    folder = Path(cache) if cache.startswith("/") else Path.home() / ".cache"
    return folder / "volary" / name


def keep(name: str, data: bytes) -> Path:
    """Write the file whole or not at all, and return its path. Raises OSError."""
    path = path_of(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "wb") as written:
            written.write(data)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path
