"""Describes what a setting accepts: for refusals and for the reference page."""

from __future__ import annotations

from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from volary.session.reading.choice import Choice
from volary.session.reading.fields import settings_of

WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
    NoneType: "null",
    Any: "anything plain",
}


def choice_in(hint: Any) -> Choice | None:
    """The `Choice` of an annotated field, which may also accept null; or None."""
    if is_union(hint):
        return next((found for arm in get_args(hint) if (found := choice_in(arm))), None)
    if get_origin(hint) is not Annotated:
        return None
    return next((item for item in hint.__metadata__ if isinstance(item, Choice)), None)


def is_union(hint: Any) -> bool:
    """Whether the type is `X | Y` in either spelling."""
    return get_origin(hint) in (Union, UnionType)


def in_words(hint: Any) -> str:
    """Say what a setting of this type accepts: "a number or null", "one of: auto, cpu, cuda"."""
    if hint in WORDS:
        return WORDS[hint]
    if (choice := choice_in(hint)) and not is_union(hint):
        return choice.in_words()
    if get_origin(hint) is Annotated:
        return in_words(get_args(hint)[0])
    if is_union(hint):
        arms = sorted(get_args(hint), key=lambda arm: arm is NoneType)
        return " or ".join(in_words(arm) for arm in arms)
    if get_origin(hint) is Literal:
        return "one of: " + ", ".join(str(value) for value in get_args(hint))
    if get_origin(hint) is dict:
        return f"by name {in_words(get_args(hint)[1])}"
    if get_origin(hint) in (list, tuple):
        return _sequence_in_words(hint)
    return getattr(hint, "accepted", None) or "settings: " + ", ".join(settings_of(hint))


def _sequence_in_words(hint: Any) -> str:
    items = get_args(hint)
    if get_origin(hint) is list or items[1:] == (Ellipsis,):
        return f"a list, each {in_words(items[0])}"
    return f"a list of {len(items)}: " + ", ".join(in_words(item) for item in items)
