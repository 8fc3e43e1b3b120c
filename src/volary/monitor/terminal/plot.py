"""Curves in a terminal: dots of braille, axes with their values, and a letter where each curve ends.

Drawn here, as what a plotting library needs to be imported is longer than all of `volary show` takes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from volary.monitor.curves import Curve
from volary.monitor.wording import number

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
COLOURS = ("cyan", "yellow", "magenta", "green", "blue", "red")
_BRAILLE = 0x2800
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # by row and column of a cell
_ROWS, _COLUMNS = 4, 2
_TICKS = 4  # lines between two values at the left edge

Cell = tuple[str, int | None]  # what stands there, and of which curve


def plot(curves: Sequence[Curve], width: int, height: int) -> list[list[Cell]]:
    """Lines of cells for `curves` over their steps, with axes and a legend, `width` wide; `height` of the canvas.

    Values that are not finite are gaps. There is a letter for each curve: at most 26 are drawn.
    """
    drawn = [curve for curve in curves if curve.finite][: len(LETTERS)]
    if not drawn:
        return [_text("nothing that can be drawn is recorded")]
    bounds = _bounds(drawn)
    left, right, low, high = bounds
    rows = [low + (high - low) * (height - 1 - row) / max(1, height - 1) for row in range(height)]
    labels = [number(value) if not row % _TICKS or row == height - 1 else "" for row, value in enumerate(rows)]
    margin = max(map(len, labels))
    canvas = _canvas(drawn, bounds, max(_COLUMNS, width - margin - 2), height)
    lines = [[*_text(f"{label:>{margin}} │"), *line] for label, line in zip(labels, canvas, strict=True)]
    steps = f"step {left}", str(right)
    axis = steps[0] + steps[1].rjust(len(canvas[0]) - len(steps[0])) if right > left else steps[0]
    lines += [_text(f"{'':>{margin}} └" + "─" * len(canvas[0])), _text(f"{'':>{margin}}  {axis}")]
    return [*lines, *([*_text(" " * (margin + 2)), *_legend(place, curve)] for place, curve in enumerate(drawn))]


def _legend(place: int, curve: Curve) -> list[Cell]:
    (least, most), newest = curve.extremes(), curve.points[-1]
    text = f"{curve.label}: {number(newest.mean)} at step {newest.step}"
    text += f", least {number(least.mean)} at {least.step}, most {number(most.mean)} at {most.step}"
    return [(LETTERS[place], place), *_text(f" {text}")]


def _text(text: str) -> list[Cell]:
    return [(character, None) for character in text]


def _bounds(curves: Sequence[Curve]) -> tuple[int, int, float, float]:
    """First and last step, least and greatest value."""
    points = [point for curve in curves for point in curve.finite]
    values = [point.mean for point in points]
    low, high = min(values), max(values)
    if low == high:
        low, high = low - abs(low or 1.0) / 2, high + abs(high or 1.0) / 2
    return min(point.step for point in points), max(point.step for point in points), low, high


def _canvas(
    curves: Sequence[Curve], bounds: tuple[int, int, float, float], width: int, height: int
) -> list[list[Cell]]:
    left, right, low, high = bounds
    dots: dict[tuple[int, int], tuple[int, int]] = {}  # by cell: its pattern, and whose newest dot that is
    ends: dict[tuple[int, int], Cell] = {}
    for place, curve in enumerate(curves):
        before: tuple[int, int] | None = None
        for point in curve.points:
            if not math.isfinite(point.mean):
                before = None
                continue
            x = round((point.step - left) / max(1, right - left) * (width * _COLUMNS - 1))
            y = round((high - point.mean) / (high - low) * (height * _ROWS - 1))
            for dot_x, dot_y in _line(before or (x, y), (x, y)):
                cell = dot_y // _ROWS, dot_x // _COLUMNS
                pattern = dots.get(cell, (0, place))[0] | _DOTS[dot_y % _ROWS][dot_x % _COLUMNS]
                dots[cell] = pattern, place
            before = x, y
        if before:
            ends[before[1] // _ROWS, before[0] // _COLUMNS] = LETTERS[place], place
    return [
        [ends.get((row, column)) or _dotted(dots.get((row, column))) for column in range(width)]
        for row in range(height)
    ]


def _dotted(found: tuple[int, int] | None) -> Cell:
    return (chr(_BRAILLE | found[0]), found[1]) if found else (" ", None)


def _line(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    """The dots from one to another, both included."""
    (x, y), (to_x, to_y) = start, end
    count = max(abs(to_x - x), abs(to_y - y), 1)
    return [(x + round((to_x - x) * n / count), y + round((to_y - y) * n / count)) for n in range(count + 1)]
