"""Locations of data: a path on this machine, or the URL of a file or folder in a store."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from volary.errors import SettingError

_FORM = re.compile(r"[a-z][a-z0-9+.-]*://.+", re.ASCII)


@dataclass(frozen=True)
class Url:
    """A file or folder in a store. The store's own configuration says who reads it, with which credentials."""

    text: str
    accepted: ClassVar[str] = "a URL (s3://bucket/folder)"

    @classmethod
    def parse(cls, text: str) -> Url:
        """Raises SettingError for text that has no scheme."""
        if not _FORM.fullmatch(text):
            raise SettingError(f"is {text!r}; accepted: {cls.accepted}")
        return cls(text)

    def __str__(self) -> str:
        return self.text


Location = Path | Url
