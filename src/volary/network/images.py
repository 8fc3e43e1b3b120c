"""The shape of an image, or one sentence why this network cannot take it."""

from __future__ import annotations

from volary.errors import SettingError


def image_shape(network: str, input_shape: tuple[int, ...], smallest: int) -> tuple[int, int, int]:
    """(channels, height, width) of `input_shape`; refused if a side is below `smallest` pixels. Raises SettingError."""
    needs = f"network {network!r} takes images (channels, height, width) of at least {smallest} x {smallest} pixels"
    if len(input_shape) != 3 or min(input_shape[1:]) < smallest:
        raise SettingError(f"{needs}; the input shape is {input_shape}")
    channels, height, width = input_shape
    return channels, height, width
