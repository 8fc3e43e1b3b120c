"""Collects the problems of a session: every problem of a file is reported at once, one line each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from volary.errors import SettingError
from volary.session.reading.synonyms import SYNONYMS, synonym_of


@dataclass(frozen=True)
class Problem:
    """One mistake: where it was written, which setting it concerns, and what is accepted.

    place: "session.yaml:14:5" (line and column count from 1), "command line" or "Session(...)".
    path: the setting's dotted name, empty when the whole file is meant.
    """

    place: str
    path: str
    sentence: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.place, self.path, self.sentence) if part)


class SessionError(SettingError):
    """A session that cannot be used; its text has one line per problem."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)  # as the only argument, so that it survives pickling

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


@dataclass
class Problems:
    """The list that a reader fills; `raise_if_any` ends the reading."""

    found: list[Problem] = field(default_factory=list)

    def add(self, place: str, path: str, sentence: str) -> None:
        """Note one problem at a place of the file, with the setting's path and a sentence."""
        self.found.append(Problem(place, path, sentence))

    def raise_if_any(self) -> None:
        """Raise SessionError with everything that was noted, each problem once."""
        if self.found:
            raise SessionError(dict.fromkeys(self.found))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name of `known` that `name` is probably meant to be."""
    from difflib import get_close_matches

    if name in SYNONYMS:
        return synonym_of(name, known)
    return next(iter(get_close_matches(name, list(known), n=1)), None)


def unknown(name: str, known: Iterable[str], near: str | None = None) -> str:
    """Say that `name` is unknown, which known name is meant (`near`, or else the nearest), and which there are."""
    names = list(known)
    if not names:
        return "unknown; there are no settings here"
    near = near or nearest(name, names)
    hint = f"did you mean {near!r}? " if near else ""
    return f"unknown; {hint}Known: {', '.join(names)}"
