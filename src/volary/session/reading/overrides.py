"""Dotted overrides: `optimizer.lr=0.1` on top of a session file, as if it had been written there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, cast

from volary.session.misplaced import COMMAND_LINE as PLACE
from volary.session.reading.choice import Choice
from volary.session.reading.fields import settings_of
from volary.session.reading.node import Node
from volary.session.reading.problems import Problems
from volary.session.reading.words import choice_in
from volary.session.reading.yaml_file import parse


@dataclass(frozen=True)
class Override:
    """One `a.b.c=value` of the command line, read."""

    names: tuple[str, ...]
    node: Node

    @property
    def path(self) -> str:
        """The dotted name of the setting."""
        return ".".join(self.names)


def apply(root: Node, overrides: Sequence[str], cls: type, problems: Problems) -> None:
    """Change the tree below `root`. Broad ones come first (`optimizer=adam`, then `optimizer.lr=0.1`), so their order
    does not matter; of two for the same setting the later holds.
    """
    read = [override for text in overrides if (override := read_override(text, problems))]
    for override in sorted(read, key=lambda each: (len(each.names), each.names[-1] != "name")):
        _place(root, override, cls, problems)


def read_override(text: str, problems: Problems) -> Override | None:
    """`a.b.c=value`, the value as YAML; None if it is not one, and the problem is noted."""
    path, equals, value = text.partition("=")
    names = tuple(path.strip().split("."))
    if not equals or not all(names):
        problems.add(PLACE, "", f"{text!r} is not NAME=VALUE; {_meant(path, bool(equals))}")
        return None
    noted = len(problems.found)
    node = parse(value, PLACE, Path.cwd(), problems, numbered=False)
    problems.found[noted:] = [type(each)(PLACE, path, each.sentence) for each in problems.found[noted:]]
    return Override(names, node) if node else None


def _meant(path: str, valued: bool) -> str:
    """An example of an override; the one that was meant, if only its value is missing."""
    is_name = not valued and re.fullmatch(r"[^\W\d]\w*(?:\.\w+)+", path)
    return f"did you mean {path}=...?" if is_name else "accepted: a setting and its value, as in optimizer.lr=0.1"


def _place(root: Node, override: Override, cls: type, problems: Problems) -> None:
    """Walk down to where the override belongs, opening what is not there yet, and put it in."""
    node, hint = root, cast(Any, cls)
    for depth, name in enumerate(override.names):
        _drop_rivals(node, name, override, hint)
        if depth == len(override.names) - 1:
            node.value[name] = override.node
            return
        hint = settings_of(hint).get(name) if _is_section(hint) else None
        child = _opened(node.value.get(name), choice_in(hint))
        if child is None:
            taken = ".".join(override.names[: depth + 1])
            problems.add(PLACE, override.path, f"{taken} holds a value and no settings of its own")
            return
        node.value[name] = child
        node = child


def _is_section(hint: Any) -> bool:
    return isinstance(hint, type) and is_dataclass(hint)


def _opened(node: Node | None, choice: Choice | None) -> Node | None:
    """A mapping to go down into: what is there, a bare plug-in name in its long form, or a new one."""
    if node is None or node.value is None:
        return Node({}, PLACE, PLACE, Path.cwd())
    if choice and isinstance(node.value, str):
        return node.with_value({"name": node})
    return node if isinstance(node.value, dict) else None


def _drop_rivals(node: Node, name: str, override: Override, hint: Any) -> None:
    """Remove settings that the override supersedes: `epochs` by `steps`; another plug-in's settings by a new name."""
    entries: dict[str, Node] = node.value
    for field in fields(hint) if _is_section(hint) else ():
        if field.name == name and "instead_of" in field.metadata:
            _drop(entries, field.metadata["instead_of"])
    renamed = choice_in(hint) and name == "name" and name in entries
    if renamed and entries["name"].value != override.node.value:
        for other in list(entries):
            _drop(entries, other)


def _drop(entries: dict[str, Node], name: str) -> None:
    if name in entries and entries[name].place != PLACE:
        del entries[name]
