"""Sentences for numbers and words that a setting does not accept."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from volary.errors import SettingError
from volary.network.metrics import ROOM
from volary.plugins import unknown

NO_CLASSES = (
    "the data does not say how many classes there are; accepted: network.classes (in a regression the number of "
    "outputs: 1 for a column of numbers), or a data set of your own with an attribute `classes`"
)
LOSS = "loss"  # as a metric: the loss itself


def one_of(field: str, value: object, accepted: Sequence[object]) -> None:
    """Refuse a word or number that is not among `accepted`. Raises SettingError."""
    if value not in accepted:
        raise SettingError(f"{field} is {value!r}; accepted: {', '.join(map(str, accepted))}")


def metric(name: str, outputs: Collection[str]) -> None:
    """Refuse a metric that is in no file, with the nearest name, and one of other outputs. Raises SettingError."""
    if name != LOSS and name not in ROOM.names():
        raise SettingError(f"metric: {unknown(name, [LOSS, *ROOM.names()])}")
    if name != LOSS and (of := ROOM.load(name).outputs) not in outputs:
        suit = [LOSS, *(known for known in ROOM.names() if ROOM.load(known).outputs in outputs)]
        raise SettingError(f"metric {name!r} is of {of}; accepted: {', '.join(suit)}")


def at_least(field: str, value: int, least: int) -> None:
    """Refuse a whole number below `least`. Raises SettingError."""
    if value < least:
        raise SettingError(f"{field} is {value}; accepted: a whole number from {least}")


def share(field: str, value: float) -> None:
    """Refuse a share (a dropout rate, a smoothing) outside [0, 1). Raises SettingError."""
    if not 0 <= value < 1:
        raise SettingError(f"{field} is {value}; accepted: from 0, below 1")
