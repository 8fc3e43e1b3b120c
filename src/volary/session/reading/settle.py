"""Sections made in Python: plain values become typed ones, exactly as a file's do."""

from __future__ import annotations

from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from volary.session.reading.fields import defaults_of, settings_of
from volary.session.reading.node import FAULT, from_python
from volary.session.reading.problems import Problems
from volary.session.reading.reader import Reader


def settle(section: Any) -> None:
    """Read the section's own fields as their types, in place. Raises SessionError with every problem."""
    cls = type(section)
    problems = Problems()
    reader, folder = Reader(problems), Path.cwd()
    for name, hint in settings_of(cls).items():
        value = getattr(section, name)
        if _settled(value, hint):
            continue
        node = from_python(value, f"{cls.__name__}(...)", folder)
        read = reader.read(hint, node, name, defaults_of(cls).get(name))
        if read is not FAULT:
            object.__setattr__(section, name, read)
    problems.raise_if_any()


def _settled(value: Any, hint: Any) -> bool:
    return is_dataclass(value) and isinstance(hint, type) and isinstance(value, hint)
