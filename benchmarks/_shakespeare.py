"""Tiny-shakespeare as the data sets beside the checkout have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from volary.data.sources.text import Text

FILE = Path(__file__).parents[2] / "shared" / "data" / "tiny-shakespeare" / "input.txt"
LENGTH = 64
SOURCE: dict[str, Any] = {"name": "text", "path": str(FILE), "length": LENGTH, "validation": 0.01}


def require() -> None:
    """Raise DataError, a sentence, unless the file is there."""
    Text(path=FILE, length=LENGTH).check()
