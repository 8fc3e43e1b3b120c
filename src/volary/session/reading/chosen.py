"""Reads what a setting that names a plug-in is given: a name, a mapping with the plug-in's settings, or an object."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

from volary.errors import SettingError
from volary.session.misplaced import nameless
from volary.session.reading.fields import settings_of
from volary.session.reading.node import FAULT, Node, from_python, join
from volary.session.values.reference import UserObject, without_name

if TYPE_CHECKING:
    from volary.session.reading.choice import Choice
    from volary.session.reading.reader import Reader

PATTERN = frozenset("*?[.")  # in a key: it is no setting's name


def read_choice(choice: Choice, reader: Reader, node: Node, path: str, default: Any) -> Any:
    """The plug-in (or UserObject) that the node names, with the node's other keys as its settings.

    default: the name that is meant where none is given. A value with a problem, which the reader notes, is FAULT.
    """
    if isinstance(node.value, UserObject) and choice.user:
        arguments = from_python(node.value.arguments, node.place, node.folder)
        return FAULT if reader.read(Any, arguments, path) is FAULT else node.value
    node = _unfolded(choice, node)
    if not isinstance(node.value, dict):
        return reader.refuse(node, path, choice.in_words())
    if _by_pattern(choice, node.value):
        return _patterns(choice, reader, node, path)
    entries = dict(node.value)
    meant = next((one for one in choice.open().by_setting if one in entries), default)
    name = entries.pop("name", node.with_value(meant))
    if not isinstance(name.value, str):
        given = "lacks a name" if "name" not in node.value else f"has the name {name.plain()!r}"
        return reader.fault(name.place, path, f"{given}; accepted: {choice.in_words()}")
    if "name" not in node.value and (sentence := nameless(choice, entries, name.value, path)):
        return reader.fault(node.place, path, sentence)
    if name.value in (room := choice.open()).moved:
        return reader.moved(name, node.with_value(entries), path, room.moved[name.value], str(default))
    called, fixed = room.unfolded(name.value)
    for setting in sorted(entries.keys() & fixed):
        return reader.fault(
            entries[setting].place,
            join(path, setting),
            f"is {fixed[setting]} where the name is {name.value!r}; accepted: another {setting} with name: {called}",
        )
    name, entries = name.with_value(called), {key: name.with_value(one) for key, one in fixed.items()} | entries
    try:
        if ":" in name.value and choice.user:
            apart = _beside(choice, reader, entries, path)
            arguments = reader.read(Any, node.with_value(entries), path)
            if FAULT in (arguments, *apart.values()):
                return FAULT
            return UserObject.found_from(name.value, name.folder, arguments, apart)
        if (
            choice.user
            and name.value not in choice.open().names()
            and (sentence := without_name(name.value, name.folder))
        ):
            return reader.fault(name.place, path, sentence)
        plugin = choice.open().load(name.value)
    except SettingError as error:
        return reader.fault(name.place, path, str(error))
    return reader.build(plugin, node.with_value(entries), path)


def _beside(choice: Choice, reader: Reader, entries: dict[str, Node], path: str) -> dict[str, Any]:
    """Take out of `entries` what a user's object has beside its arguments, and read it."""
    hints = settings_of(choice.open().loaded_protocol()) if choice.beside else {}
    given = {name: entries.pop(name) for name in choice.beside if name in entries}
    return {name: reader.read(hints[name], child, join(path, name)) for name, child in given.items()}


def _by_pattern(choice: Choice, value: dict[str, Node]) -> bool:
    """Whether a mapping gives plug-ins by pattern: a key is no name of a setting."""
    return bool(choice.open().by_pattern and "name" not in value and any(set(key) & PATTERN for key in value))


def _patterns(choice: Choice, reader: Reader, node: Node, path: str) -> Any:
    found: dict[str, Any] = {}
    for pattern, child in node.value.items():
        where = join(path, pattern)
        if isinstance(child.value, dict) and _by_pattern(choice, child.value):
            return reader.fault(child.place, where, f"has patterns again; accepted: {', '.join(choice.open().names())}")
        found[pattern] = read_choice(choice, reader, child, where, None)
    return FAULT if FAULT in found.values() else choice.open().patterned(found)


def _unfolded(choice: Choice, node: Node) -> Node:
    """A bare name, or a plug-in made in Python, in the long form {name: ..., setting: ...}."""
    if isinstance(node.value, str):
        return node.with_value({"name": node})
    if (parts := choice.open().parts_of(node.value)) is not None:
        return from_python(parts, node.place, node.folder)
    if is_dataclass(node.value) and not isinstance(node.value, type):
        name = node.with_value(choice.name_of(type(node.value)))
        return node.with_value({"name": name, **_settings_as_nodes(node)})
    return node


def _settings_as_nodes(node: Node) -> dict[str, Node]:
    """The fields of the dataclass instance in `node` as nodes at the same place."""
    value = node.value
    return {name: from_python(getattr(value, name), node.place, node.folder) for name in settings_of(type(value))}
