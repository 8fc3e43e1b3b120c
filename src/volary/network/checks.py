"""Sentences for numbers and words that a setting does not accept."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.network.metrics import ROOM
from volary.plugins import unknown

if TYPE_CHECKING:
    from volary.network.metrics._base import Metric

NO_CLASSES = (
    "the data does not say how many classes there are; accepted: network.classes (in a regression the number of "
    "outputs: 1 for a column of numbers), or a data set of your own with an attribute `classes`"
)
LOSS = "loss"  # as a metric: the loss itself


def one_of(field: str, value: object, accepted: Sequence[object]) -> None:
    """Refuse a word or number that is not among `accepted`. Raises SettingError."""
    if value not in accepted:
        raise SettingError(f"{field} is {value!r}; accepted: {', '.join(map(str, accepted))}")


def metrics(decides: str, asked: Sequence[Metric], outputs: Collection[str]) -> None:
    """Refuse metrics of other outputs, and what decides if it is the loss, one of `asked` or in a file, and cannot.

    Raises SettingError, for a name that is not known with the nearest one.
    """
    names = [one.name for one in asked]
    for one in asked:
        if one.outputs not in outputs:
            suit = ", ".join(known for known in ROOM.names() if ROOM.load(known).outputs in outputs)
            raise SettingError(f"metrics: {one.name!r} is of {one.outputs}; accepted: {suit}")
        if names.count(one.name) > 1:
            raise SettingError(f"metrics has {one.name!r} twice; accepted: each once")
    if decides in (LOSS, *(one.name for one in asked if one.higher_is_better is not None)):
        return
    if decides not in ROOM.names():
        raise SettingError(f"metric: {unknown(decides, list(dict.fromkeys([LOSS, *ROOM.names(), *names])))}")
    found = ROOM.load(decides)
    if _decides(found, outputs):
        return
    wrong = "is several figures and goes among `metrics`" if found.outputs in outputs else f"is of {found.outputs}"
    suit = ", ".join([LOSS, *(name for name in ROOM.names() if _decides(ROOM.load(name), outputs))])
    raise SettingError(f"metric {decides!r} {wrong}; accepted: {suit}")


def _decides(kind: type[Metric], outputs: Collection[str]) -> bool:
    return kind.outputs in outputs and kind.higher_is_better is not None


def at_least(field: str, value: int, least: int) -> None:
    """Refuse a whole number below `least`. Raises SettingError."""
    if value < least:
        raise SettingError(f"{field} is {value}; accepted: a whole number from {least}")


def share(field: str, value: float) -> None:
    """Refuse a share (a dropout rate, a smoothing) outside [0, 1). Raises SettingError."""
    if not 0 <= value < 1:
        raise SettingError(f"{field} is {value}; accepted: from 0, below 1")
