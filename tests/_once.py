"""Files that take long to make and are only read: made once, however many processes run the tests."""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The folder `name` of this run of pytest. `make` makes and fills it, unless another process of the run has."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            draft = folder.with_suffix(".draft")
            make(draft)
            draft.rename(folder)
    return folder


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[], Any]) -> Any:
    """The value that `make` returns: all processes of this run of pytest get the first one's."""

    def keep(folder: Path) -> None:
        folder.mkdir()
        (folder / "it").write_bytes(pickle.dumps(make()))

    return pickle.loads((once(factory, name, keep) / "it").read_bytes())
