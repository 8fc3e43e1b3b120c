"""The representation of each layer's gradient, as the run has chosen it last, and bytes by codec and route."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from volary.monitor.wording import clean, number, size
from volary.run.database.traffic import Traffic

if TYPE_CHECKING:
    from volary.run.database.reader import Event

HEADER = ("layer", "representation", "bytes", "expected ms", "why")
TRAFFIC_HEADER = ("codec", "route", "sent", "received", "as they are", "saved")


def rows(event: Event) -> list[tuple[str, str, str, str, str]]:
    """A row of HEADER for each layer, from an event of kind `ways`."""
    return [
        (clean(layer), clean(representation), size(float(sent)), number(1e3 * float(seconds)), clean(why))
        for layer, representation, sent, seconds, why in event.data["table"]
    ]


def traffic_rows(traffic: Iterable[Traffic]) -> list[tuple[str, ...]]:
    """A row of TRAFFIC_HEADER for each codec and route, and one of all together if there are several."""
    found = [(clean(one.codec), clean(one.route), one) for one in traffic]
    if len(found) > 1:
        sums = map(sum, zip(*(one[2:] for *_, one in found), strict=True))
        found.append(("all", "", Traffic("all", "", *sums)))
    return [
        (codec, route, size(one.sent_bytes), size(one.received_bytes), size(one.plain_bytes), saved(one))
        for codec, route, one in found
    ]


def saved(one: Traffic) -> str:
    """The share of its bytes that a codec saved, and how many times fewer they are; a dash where it saved nothing."""
    travelled = one.sent_bytes + one.received_bytes
    if not travelled or travelled == one.plain_bytes:
        return "-"
    return f"{one.saved:.0%}, {number(one.plain_bytes / travelled)} times fewer"


def links(event: Event) -> str:
    """Say what rate the choice assumes for links."""
    bytes_per_s = float(event.data["bytes_per_s"])
    return f"links carry {size(bytes_per_s)}/s" if bytes_per_s else "links not measured"


def in_lines(event: Event) -> str:
    """The whole table, as text of several lines."""
    table = [HEADER, *rows(event)]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADER))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return "\n  ".join([f"representations chosen, {links(event)}", *lines])


def compared(event: Event) -> str:
    """Say in a line what steps took with the table above and with the next best, and which of them stays."""
    first_s, second_s = (float(seconds) for seconds in event.data["step_s"])
    these, next_best = number(1e3 * first_s), number(1e3 * second_s)
    taken = "they are taken" if event.data["stays"] else "these stay"
    return f"step {event.step}: {these} ms a step with these, {next_best} ms with the next best: {taken}"
