"""One entry of a network's list: a kind of layer or a block, its settings, and how it is connected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from volary.network.graph.form import PHASES, Phase
from volary.session.reading.node import Node
from volary.session.reading.problems import Problems
from volary.session.values.reference import UserObject

FORM = "a kind of layer and its settings, as `conv: {channels: 20, kernel: 5}`"
OWN = ("name", "inputs", "edges", "phase", "share")  # what every entry may say beside its kind's settings


@dataclass(frozen=True)
class WrittenEntry:
    """An entry as it was written.

    word: the kind, the block or `repeat`. name: None: it gets one. inputs: edges that it reads; None: those of the
    entry before it. edges: names of those that it makes; None: by its own name. path: where it is in the network's
    settings.
    """

    word: str
    path: str
    settings: Mapping[str, Any]
    name: str | None = None
    inputs: tuple[str, ...] | None = None
    edges: tuple[str, ...] | None = None
    phase: Phase | None = None
    share: Mapping[str, str] = field(default_factory=dict)


def absolute(node: Node) -> Node:
    """The same settings, in which references to a user's files and modules mean the same from any folder."""
    if isinstance(node.value, list):
        return node.with_value([absolute(child) for child in node.value])
    if isinstance(node.value, str) and ":" in node.value:
        return node.with_value(_absolute(node.value, node))
    if not isinstance(node.value, dict):
        return node
    return node.with_value(
        {(_absolute(key, child) if ":" in key else key): absolute(child) for key, child in node.value.items()}
    )


def _absolute(reference: str, node: Node) -> str:
    from volary.errors import SettingError

    try:
        return UserObject.found_from(reference, node.folder, {}).reference
    except SettingError:
        return reference


def read_entry(written: Any, path: str, problems: Problems) -> WrittenEntry | None:
    """The entry that is written as plain values at `path`; None, and a problem is noted, if it is none."""
    if isinstance(written, str):
        return WrittenEntry(written, path, {})
    if not isinstance(written, Mapping) or len(written) != 1:
        problems.add("", path, f"is no layer; accepted: {FORM}")
        return None
    ((word, given),) = written.items()
    path = f"{path}.{word}"
    if given is not None and not isinstance(given, Mapping):
        problems.add("", path, f"is {given!r}; accepted: settings, as in {FORM}")
        return None
    settings = dict(given or {})
    own = {key: settings.pop(key) for key in OWN if settings.get(key) is not None}
    noted = len(problems.found)
    name, phase, share = own.get("name"), own.get("phase"), own.get("share", {})
    if name is not None and not (isinstance(name, str) and all(name.split("."))):
        problems.add("", f"{path}.name", f"is {name!r}; accepted: a name, or a path of names as `block.conv`")
    if phase is not None and phase not in PHASES:
        problems.add("", f"{path}.phase", f"is {phase!r}; accepted: {', '.join(PHASES)}, or null for both")
    if not isinstance(share, Mapping) or not all(isinstance(shared, str) for shared in share.values()):
        problems.add("", f"{path}.share", "accepted: a parameter and a name that others give theirs, as {weight: tied}")
    inputs = _names(own.get("inputs"), f"{path}.inputs", problems)
    edges = _names(own.get("edges"), f"{path}.edges", problems)
    if len(problems.found) > noted:
        return None
    return WrittenEntry(word, path, settings, name, inputs, edges, phase, share)


def _names(value: Any, path: str, problems: Problems) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = (value,) if isinstance(value, str) else value
    if isinstance(names, list | tuple) and names and all(isinstance(name, str) for name in names):
        return tuple(names)
    problems.add("", path, f"is {value!r}; accepted: the name of an edge, or a list of names")
    return None
