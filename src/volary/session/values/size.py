"""An amount of memory or disk: "4GB", "512 MiB", or bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from volary.errors import SettingError

_UNITS = {"": 1, "B": 1, **{f"{letter}B": 1000**power for power, letter in enumerate("KMGT", start=1)}}
_UNITS |= {f"{letter}IB": 1024**power for power, letter in enumerate("KMGT", start=1)}


@dataclass(frozen=True)
class Size:
    """A number of bytes, with the unit in which it was written."""

    accepted: ClassVar[str] = "a size ('4GB', '512MiB', '0')"
    count: int

    @classmethod
    def parse(cls, text: str) -> Size:
        """Read "4GB", "1.5 TB", "512MiB" or "0". Raises SettingError for anything else."""
        found = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([A-Za-z]{0,3})\s*", text, re.ASCII)
        if not found or found[2].upper() not in _UNITS:
            raise SettingError(f"is {text!r}; accepted: {cls.accepted}")
        return cls(int(float(found[1]) * _UNITS[found[2].upper()]))

    def __str__(self) -> str:
        for unit in ("TB", "GB", "MB", "KB", "TiB", "GiB", "MiB", "KiB"):
            if self.count and self.count % _UNITS[unit.upper()] == 0:
                return f"{self.count // _UNITS[unit.upper()]}{unit}"
        return f"{self.count}B"
