"""A length of time as people write it: "90s", "15min", "2h", "1.5 d"."""

from __future__ import annotations

import re

from volary.errors import SettingError

ACCEPTED = "a length of time ('90s', '15min', '2h', '1.5d')"
_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


def seconds_of(text: str) -> float:
    """Read it, in seconds. Raises SettingError for anything else, and for none at all."""
    found = re.fullmatch(r"\s*([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*(s|min|h|d)\s*", text, re.ASCII)
    if not found or float(found[1]) == 0:
        raise SettingError(f"is {text!r}; accepted: {ACCEPTED}")
    return float(found[1]) * _UNITS[found[2]]
