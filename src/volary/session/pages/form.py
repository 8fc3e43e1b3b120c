"""A session as a form: each setting with its value, what it accepts, and what the comment beside it says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from volary.session.pages.comments import comments_of
from volary.session.reading.choice import Choice
from volary.session.reading.fields import settings_of
from volary.session.reading.node import join
from volary.session.reading.problems import Problems
from volary.session.reading.words import choice_in, in_words
from volary.session.reading.yaml_file import parse
from volary.session.resolved import flow, plain
from volary.session.values.reference import UserObject


@dataclass(frozen=True)
class FormField:
    """A setting by its dotted name; value: as it would be typed. choices: all values, where they can be listed."""

    setting: str
    value: str
    accepted: str
    choices: tuple[str, ...]
    note: str


def form(session: Any) -> list[FormField]:
    """The settings of a session, in the order of the specification, those of each chosen plug-in below its name."""
    return list(_fields("", session))


def _fields(path: str, of: Any) -> Iterator[FormField]:
    notes = comments_of(type(of))
    for name, hint in settings_of(type(of)).items():
        value, setting, note = getattr(of, name), join(path, name), notes.get(name, "")
        if choice := choice_in(hint):
            yield from _choice(setting, value, choice, note)
        elif is_dataclass(value) and not hasattr(value, "parse"):
            yield from _fields(setting, value)
        else:
            yield FormField(setting, _typed(plain(value, hint)), in_words(hint), _listed(hint), note)


def _choice(setting: str, value: Any, choice: Choice, note: str) -> Iterator[FormField]:
    room = choice.open()
    if isinstance(value, UserObject) or room.parts_of(value) is not None:  # as a whole: nobody knows its settings
        yield FormField(setting, _typed(plain(value)), choice.in_words(), (), note)
        return
    yield FormField(setting, choice.name_of(type(value)), choice.in_words(), tuple(room.names()), note)
    yield from _fields(setting, value)


def _typed(value: Any) -> str:
    """A plain value as YAML; text as it is, if that reads back as the same."""
    if isinstance(value, str) and value != (quoted := flow(value)):
        problems = Problems()
        read = parse(value, "", Path(), problems, numbered=False) if value.strip() else None
        return value if read is not None and not problems.found and read.value == value else quoted
    return flow(value)


def _listed(hint: Any) -> tuple[str, ...]:
    if hint is bool:
        return ("true", "false")
    return tuple(map(str, get_args(hint))) if get_origin(hint) is Literal else ()
