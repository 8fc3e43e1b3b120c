"""Text that is looked at, for networks that go on writing it: a file, or a folder of such."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from volary.data.formats.text_file import open_text
from volary.errors import DataError

ACCEPTED = "text in UTF-8, as .txt"
SUFFIX = ".txt"
MOST_SYMBOLS = 20_000_000  # that are counted
EXCERPT = 400


@dataclass(frozen=True)
class SeenText:
    """files: how many; one if it is no folder. cut: whether there is more than what was counted."""

    files: int
    symbols: int
    distinct: int
    lines: int
    excerpt: str
    cut: bool


def text_at(path: Path) -> SeenText | None:
    """The text at `path`, a file or a folder with such at any depth; None if there is none. Raises DataError."""
    if path.is_file():
        files = [path] if path.suffix.lower() == SUFFIX else []
    else:
        files = sorted(one for one in path.rglob(f"*{SUFFIX}") if one.is_file() and one.name[0] != ".")
    if not files:
        return None
    counted, left, excerpt = Counter[str](), MOST_SYMBOLS, ""
    for file in files:
        if left <= 0:
            break
        try:
            with open_text(file, ACCEPTED) as opened:
                text = opened.read(left)
        except UnicodeDecodeError:
            raise DataError(f"{file}: is not UTF-8; accepted: {ACCEPTED}") from None
        excerpt = excerpt or text[:EXCERPT]
        counted.update(text)
        left -= len(text)
    if not counted:
        raise DataError(f"{path}: is empty; accepted: {ACCEPTED}")
    return SeenText(len(files), counted.total(), len(counted), counted["\n"], excerpt, left <= 0)
