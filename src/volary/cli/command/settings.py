"""The settings that every session has, by walking its specification."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any, Literal, get_args, get_origin

from volary.session import Choice, Period, Session
from volary.session.reading.fields import settings_of
from volary.session.reading.words import choice_in


def settings(section: type = Session, path: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted name and type of each setting; sections are gone into, plug-ins are not."""
    for name, hint in settings_of(section).items():
        dotted = f"{path}.{name}" if path else name
        if isinstance(hint, type) and is_dataclass(hint) and hint is not Period:
            yield from settings(hint, dotted)
        else:
            yield dotted, hint


def choices() -> Iterator[tuple[str, Choice]]:
    """Dotted name and room of each setting whose value names a plug-in."""
    for name, hint in settings():
        if choice := choice_in(hint):
            yield name, choice


def values(name: str) -> list[str]:
    """The values that can be listed of the setting called `name`: names of plug-ins, words, true and false."""
    hint = dict(settings()).get(name)
    if choice := choice_in(hint):
        return choice.open().names()
    if get_origin(hint) is Literal:
        return [str(value) for value in get_args(hint)]
    return ["true", "false"] if hint is bool else []
