"""The way between a lab's hosts where it is long: how long a packet takes, and how many are lost."""

from __future__ import annotations

import re
from dataclasses import dataclass

from volary.errors import SettingError

MOST_S = 10.0


@dataclass(frozen=True)
class Distance:
    """round_trip_s: between any two hosts. loss: share of the packets that are lost on the way from one to another."""

    round_trip_s: float = 0.0
    loss: float = 0.0

    @classmethod
    def of(cls, round_trip: str | None, loss: str | None) -> Distance | None:
        """The distance as in "50ms" and "5%"; None without both. Raises SettingError."""
        if round_trip is None and loss is None:
            return None
        return cls(_seconds(round_trip or "0ms"), _share(loss or "0%"))


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s)", text.strip())
    seconds = float(found[1]) * (0.001 if found[2] == "ms" else 1.0) if found else -1.0
    if not 0 <= seconds <= MOST_S:
        raise SettingError(f"round trip is {text!r}; accepted: 0ms to {MOST_S:g}s, as in 50ms")
    return seconds


def _share(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", text.strip())
    if not found or not float(found[1]) < 100:
        raise SettingError(f"loss is {text!r}; accepted: 0% and more, below 100%, as in 5%")
    return float(found[1]) / 100
