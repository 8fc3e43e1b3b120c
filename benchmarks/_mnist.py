"""MNIST as the data sets beside the checkout have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from volary.data.sources.idx import Idx

FOLDER = Path(__file__).parents[2] / "shared" / "data" / "mnist"
SOURCE: dict[str, Any] = {"name": "idx", "folder": str(FOLDER), "mean": 0.1307, "std": 0.3081}
TRAINING_SAMPLES = 60_000


def require() -> None:
    """Raise DataError, a sentence, unless the files are there."""
    Idx(folder=FOLDER).check()
