"""Draws models.svg from models.json, or trunk.svg from trunk.json: accuracy over time by model, of the first seed.

python benchmarks/_models_plot.py [models | trunk]
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 860, 470, 60, 40, 200, 50
HIGHEST, STEP = 100.0, 2.0  # percent
TITLE = "Right answers on validation images, in percent; one of 4 workers 3 times slower"
ROOM = 1.03
# readable on white and on black
COLOURS = (
    "#808080",
    "#d1495b",
    "#2e86de",
    "#1b9e77",
    "#e08e0b",
    "#8e5bd0",
    "#00a3a3",
    "#c2569b",
    "#7a9a01",
    "#b5651d",
    "#5470c6",
    "#9aa400",
    "#d96f9c",
    "#4f8f6b",
    "#a0522d",
    "#6c7a89",
    "#c0392b",
)
STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #24292f }
.axis { stroke: #8c959f } .grid { stroke: #8c959f; opacity: .3 }
@media (prefers-color-scheme: dark) { text { fill: #d0d7de } }
</style>"""

Curve = list[tuple[float, float]]  # seconds, percent


@dataclass(frozen=True)
class Plot:
    """wanted: a line at so many percent. lowest: percent at the bottom."""

    title: str
    wanted: float
    lowest: float


PLOTS = {
    "models": Plot(TITLE, wanted=98.0, lowest=90.0),
    "trunk": Plot(f"{TITLE}, two behind a trunk of 30 Mbit/s", wanted=90.0, lowest=80.0),
}


def main() -> None:
    """Read, draw, write."""
    which = sys.argv[1] if len(sys.argv) > 1 else "models"
    found = json.loads((FOLDER / f"{which}.json").read_text(encoding="utf-8"))
    curves = {name: _curve(seeds[0]) for name, seeds in found.items()}
    (FOLDER / f"{which}.svg").write_text(_drawn(curves, PLOTS[which]), encoding="utf-8")


def _curve(trained: dict[str, Any]) -> Curve:
    return [(each["seconds"], 100 * each["accuracy"]) for each in trained["evaluations"]]


def _drawn(curves: dict[str, Curve], plot: Plot) -> str:
    longest = ROOM * max(seconds for curve in curves.values() for seconds, _ in curve)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        STYLE,
        f'<text x="{LEFT}" y="22">{plot.title}</text>',
        *_axes(longest, plot),
    ]
    for place, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[place % len(COLOURS)]
        points = " ".join(
            f"{_x(seconds, longest):.1f},{_y(percent, plot):.1f}"
            for seconds, percent in curve
            if percent >= plot.lowest
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        y = TOP + 20 + 24 * place
        parts.append(f'<rect x="{WIDTH - RIGHT + 24}" y="{y - 6}" width="22" height="4" fill="{colour}"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 54}" y="{y}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _axes(longest: float, plot: Plot) -> list[str]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    lines = []
    percent = plot.lowest
    while percent <= HIGHEST:
        y = _y(percent, plot)
        lines.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text x="{LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">{percent:.0f}</text>')
        percent += STEP
    every = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200) if longest / step <= 10)
    for number in range(int(longest // every) + 1):
        x = _x(number * every, longest)
        lines.append(f'<text x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{number * every}</text>')
    y = _y(plot.wanted, plot)
    lines.append(f'<line class="axis" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke-dasharray="5 4"/>')
    lines.append(f'<line class="axis" x1="{LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
    return [*lines, f'<text x="{(LEFT + right) / 2}" y="{bottom + 42}" text-anchor="middle">seconds</text>']


def _x(seconds: float, longest: float) -> float:
    return LEFT + (WIDTH - RIGHT - LEFT) * seconds / longest


def _y(percent: float, plot: Plot) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (percent - plot.lowest) / (HIGHEST - plot.lowest)


if __name__ == "__main__":
    main()
