"""Rates of links in bits per second, and the token bucket that keeps one."""

from __future__ import annotations

import re
from dataclasses import dataclass

from volary.errors import SettingError

TCP_SHARE = 1448 / 1514  # of a frame's bytes that count against the rate, what is TCP payload: MTU 1500, timestamps
_UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_LEAST, _MOST = 10**3, 10**11
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)(?:/s)?")
_BURST_BYTES, _BURST_S = 96 * 1024, 0.001
_QUEUE_BYTES, _QUEUE_S = 128 * 1024, 0.020


def parse(rate: str | float | None) -> int | None:
    """Bits per second of "100mbit", "2.5gbit" or a number of them; None for None and "unlimited".

    Raises SettingError for anything else, and outside 1kbit to 100gbit.
    """
    if rate is None or rate == "unlimited":
        return None
    found = _NUMBER.fullmatch(rate.strip().lower()) if isinstance(rate, str) else None
    if found is not None and found[2] in _UNITS:
        rate = float(found[1]) * _UNITS[found[2]]
    if isinstance(rate, str) or not _LEAST <= rate <= _MOST:
        raise SettingError(f"rate is {rate!r}; accepted: 1kbit to 100gbit, as in 100mbit or 2.5gbit, or unlimited")
    return round(rate)


def shown(bits_per_s: float | None) -> str:
    """The rate in the largest unit that fits: "2.5gbit"; "unlimited" for None."""
    if bits_per_s is None:
        return "unlimited"
    unit, factor = max(((u, f) for u, f in _UNITS.items() if f <= max(bits_per_s, 1)), key=lambda pair: pair[1])
    return f"{bits_per_s / factor:.4g}{unit}"


@dataclass(frozen=True)
class TokenBucket:
    """A token bucket. burst_bytes: what a rested link lets pass at once. queue_bytes: what waits behind it."""

    burst_bytes: int
    queue_bytes: int

    @classmethod
    def of(cls, bits_per_s: int) -> TokenBucket:
        """The bucket for a rate.

        The burst holds a whole segmentation-offload packet (64 KiB), else the kernel cuts each one up, and 1 ms of the
        rate, else a timer that a busy machine serves late loses bandwidth. The queue holds 20 ms, at least 128 KiB.
        """
        bytes_per_s = bits_per_s / 8
        return cls(
            max(_BURST_BYTES, round(bytes_per_s * _BURST_S)),
            max(_QUEUE_BYTES, round(bytes_per_s * _QUEUE_S)),
        )
