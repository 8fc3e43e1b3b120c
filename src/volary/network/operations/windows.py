"""Windows that slide over an image, a line or a volume: their settings for each axis, and how many there are."""

from __future__ import annotations

from collections.abc import Sequence

from volary.errors import SettingError

Sizes = int | tuple[int, ...]


def spatial(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes behind the channels. Raises SettingError if there are none, or more than three."""
    if not 2 <= len(shape) <= 4:
        raise SettingError("takes (channels, ...) with 1 to 3 axes behind the channels")
    return shape[1:]


def each(name: str, value: Sizes, axes: int) -> tuple[int, ...]:
    """One number for each axis. Raises SettingError for another number of numbers."""
    if isinstance(value, int):
        return (value,) * axes
    if len(value) != axes:
        raise SettingError(f"{name} has {len(value)} numbers; accepted: one, or one for each of {axes} axes")
    return tuple(value)


def refuse_below(name: str, value: Sizes, least: int) -> None:
    """Raise SettingError if one of the numbers is below `least`."""
    for number in (value,) if isinstance(value, int) else value:
        if number < least:
            raise SettingError(f"{name} is {value}; accepted: whole numbers from {least}")


def after_windows(
    sides: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    *,
    ceil: bool = False,
) -> tuple[int, ...]:
    """The number of windows along each axis; ceil: the last may hang over the edge, if it begins before it.

    Raises SettingError where not even one window fits.
    """
    found = []
    for side, size, step, pad, spread in zip(sides, kernel, stride, padding, dilation, strict=True):
        room = side + 2 * pad - (spread * (size - 1) + 1)
        count = (-(-room // step) if ceil else room // step) + 1
        if ceil and (count - 1) * step >= side + pad:
            count -= 1
        if count < 1:
            raise SettingError(
                f"has a window of {spread * (size - 1) + 1}, larger than the padded side {side + 2 * pad}"
            )
        found.append(count)
    return tuple(found)
