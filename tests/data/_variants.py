"""The table of variants of formats in docs/data.md, each row of which is a test."""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "data.md"


def rows_of(*formats: str) -> dict[tuple[str, str], str]:
    """Format and variant of the rows of these formats, and what becomes of it."""
    section = PAGE.read_text(encoding="utf-8").split("\n## Variants of formats\n")[1].split("\n##")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in section.splitlines() if line[:3] == "| `"
    ]
    return {(name.strip("`"), variant): becomes for name, variant, becomes in rows if name.strip("`") in formats}
