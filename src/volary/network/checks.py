"""Sentences for numbers and words that a setting does not accept."""

from __future__ import annotations

from collections.abc import Sequence

from volary.errors import SettingError


def one_of(field: str, value: object, accepted: Sequence[object]) -> None:
    """Refuse a word or number that is not among `accepted`. Raises SettingError."""
    if value not in accepted:
        raise SettingError(f"{field} is {value!r}; accepted: {', '.join(map(str, accepted))}")


def at_least(field: str, value: int, least: int) -> None:
    """Refuse a whole number below `least`. Raises SettingError."""
    if value < least:
        raise SettingError(f"{field} is {value}; accepted: a whole number from {least}")


def share(field: str, value: float) -> None:
    """Refuse a share (a dropout rate, a smoothing) outside [0, 1). Raises SettingError."""
    if not 0 <= value < 1:
        raise SettingError(f"{field} is {value}; accepted: from 0, below 1")
