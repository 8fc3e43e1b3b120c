"""How each layer's contributions travel, where that was chosen: the table that a run keeps of its newest choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.monitor.wording import clean, number, size

if TYPE_CHECKING:
    from volary.run.database.reader import Event

HEADER = ("layer", "way", "bytes", "expected ms", "why")


def rows(event: Event) -> list[tuple[str, str, str, str, str]]:
    """A row of HEADER for each layer, from an event of kind `ways`."""
    return [
        (clean(layer), clean(way), size(float(sent)), number(1e3 * float(seconds)), clean(why))
        for layer, way, sent, seconds, why in event.data["table"]
    ]


def links(event: Event) -> str:
    """What the choice takes the links for."""
    bytes_per_s = float(event.data["bytes_per_s"])
    return f"links carry {size(bytes_per_s)}/s" if bytes_per_s else "links not measured"


def in_lines(event: Event) -> str:
    """All of it, as text of several lines."""
    table = [HEADER, *rows(event)]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADER))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return "\n  ".join([f"ways chosen, {links(event)}", *lines])


def compared(event: Event) -> str:
    """What steps took with the table above and with the next best, and which of them stays, in a line."""
    first_s, second_s = (float(seconds) for seconds in event.data["step_s"])
    these, next_best = number(1e3 * first_s), number(1e3 * second_s)
    taken = "they are taken" if event.data["stays"] else "these stay"
    return f"step {event.step}: {these} ms a step with these ways, {next_best} ms with the next best: {taken}"
