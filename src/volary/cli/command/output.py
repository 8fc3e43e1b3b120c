"""Printing for verbs: text, tables and JSON go to stdout, remarks to stderr."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from volary.errors import BadInput
from volary.run.disk import refuse_unwritable


def new_file(path: Path, option: str) -> Path:
    """Check that a verb can make a file at `path`, and return that. Raises BadInput if something is there, or none can
    be made.
    """
    if path.exists():
        raise BadInput(f"{path} exists already; choose another with {option}")
    refuse_unwritable(option, path.parent)
    return path


def say(text: str = "") -> None:
    """Print a line of what the verb is about."""
    click.echo(text)


def remark(text: str) -> None:
    """Print a line beside it, where it does not disturb who reads the output."""
    click.echo(text, err=True)


def say_json(value: Any) -> None:
    """Print `value` as JSON; numbers that JSON does not have (NaN, infinite) become null."""
    import json

    click.echo(json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False))


def say_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns as wide as they must be; a column of numbers stands to the right."""
    columns = [[head, *(row[index] for row in rows)] for index, head in enumerate(header)]
    widths = [max(map(len, column)) for column in columns]
    right = [bool(rows) and all(_is_number(cell) for cell in column[1:]) for column in columns]
    for row in (header, *rows):
        cells = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)]
        click.echo("  ".join(cells).rstrip())


def say_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Print labelled lines, the labels in one column."""
    width = max((len(label) for label, _ in pairs), default=0)
    for label, text in pairs:
        click.echo(f"{label:<{width}}  {text}".rstrip())


def _is_number(cell: str) -> bool:
    return cell in ("", "-") or cell.lstrip("-")[:1].isdigit() or cell in ("nan", "inf", "-inf")


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(child) for child in value]
    return value
