"""Finds where a setting in the wrong place belongs, and the line to write instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from volary.errors import SettingError
from volary.session.reading.fields import defaults_of, required_of, settings_of
from volary.session.reading.node import Node, join
from volary.session.reading.synonyms import SYNONYMS
from volary.session.reading.words import choice_in

if TYPE_CHECKING:
    from volary.session.reading.choice import Choice

COMMAND_LINE = "command line"


@dataclass(frozen=True)
class Whole:
    """All that was written, and the class that it describes."""

    cls: type
    root: Node

    def homes(self, name: str, *, sections: bool) -> list[str]:
        """The dotted names of settings called `name`, also of chosen plug-ins, and of sections if asked."""
        found = (path for path in _all(self.cls, self.root, "", sections=sections) if path.rpartition(".")[2] == name)
        return list(found) if name != "name" else []


def beside(name: str, cls: type, node: Node, path: str) -> str | None:
    """Say what to write if `name`, no setting of `cls` (the section at `path`), is meant for a plug-in it names."""
    child = node.value[name]
    strangers = [other for other in node.value if other not in settings_of(cls)]
    for choice, plugin in _chosen(cls, node):
        written = _long(node, choice, cls)
        missing = [required for required in required_of(plugin) if required not in written]
        if name in settings_of(plugin):
            if child.place == COMMAND_LINE:
                return f"unknown; did you mean {join(path, choice)}.{name}={_flow(child.plain())}?"
            moved = {other: node.value[other].plain() for other in strangers if other in settings_of(plugin)}
            return f"is a setting of the {choice} {written['name']!r}; write {_line(choice, written | moved, child)}"
        if missing:
            known = child.plain() if missing == missing[:1] and strangers == [name] else "..."
            line = _line(choice, written | dict.fromkeys(missing, known), child)
            return f"unknown; settings of the {choice} {written['name']!r} are written inside it: {line}"
    return None


def elsewhere(name: str, child: Node, whole: Whole | None) -> str | None:
    """Say what to write if `name`, given the value `child`, is a setting of other sections or plug-ins."""
    if whole is None:
        return None
    for called in (name, *SYNONYMS.get(name, ())):
        if homes := whole.homes(called, sections=isinstance(child.value, dict)):
            return _at(homes, child if called == name else _of_synonym(called, child))
    return _plugin(name, child, whole)


def _at(homes: list[str], child: Node) -> str:
    if child.place == COMMAND_LINE:
        return f"unknown; did you mean {' or '.join(f'{home}={_flow(child.plain())}' for home in homes)}?"
    return (
        f"unknown here; did you mean {' or '.join(homes)}? Write {' or '.join(_below(home, child) for home in homes)}"
    )


def _of_synonym(called: str, child: Node) -> Node:
    """The value of the setting `called`, which others have in a section of its own."""
    if not isinstance(child.value, dict):
        return child
    found: Node = child.value.get(called, child.with_value("..."))
    return found


def nameless(choice: Choice, given: dict[str, Node], default: str | None, path: str) -> str | None:
    """Say which plug-in to name where settings are given without a name that add to those of the default."""
    room, settings = choice.open(), {key: child.plain() for key, child in given.items()}
    known = {name: settings_of(room.load(name)) for name in room.names()} if settings else {}
    if default not in known or not settings.keys() - known[default].keys():
        return None
    meant = [name for name, theirs in known.items() if settings.keys() | known[default].keys() <= theirs.keys()]
    if not meant:
        return None
    line = f"{path.rpartition('.')[2]}: {_flow({'name': meant[0], **settings})}"
    return f"lacks a name; {', '.join(settings)} can be set for {', '.join(meant)}; write {line}"


def moved(name: str, settings: Node, path: str, room: str, default: str) -> str:
    """Say what to write for the plug-in `name`, which is in another room now; see `Reader.moved`."""
    prefix, _, here = path.rpartition(".")
    there, known = room.rpartition(".")[2], settings_of(import_module(room).ROOM.load(name))
    given = {key: child.plain() for key, child in settings.value.items()}
    theirs, ours = ({key: one for key, one in given.items() if (key in known) is taken} for taken in (True, False))
    written: dict[str, Any] = {there: {"name": name, **theirs} if theirs else name}
    if ours:
        written[here] = {"name": default, **ours}
    if settings.place == COMMAND_LINE:
        lines = [f"{join(prefix, setting)}={_flow(value)}" for setting, value in written.items()]
    else:
        lines = [f"{setting}: {_flow(value)}" for setting, value in written.items()]
    return f"{name!r} is a {there} now; write {' and '.join(lines)}"


def _all(cls: type, node: Node, path: str, *, sections: bool) -> Iterator[str]:
    for name, hint in settings_of(cls).items():
        section = isinstance(hint, type) and is_dataclass(hint) and not hasattr(hint, "parse")
        if sections or not section:
            yield join(path, name)
        if section:
            yield from _all(hint, _child(node, name), join(path, name), sections=sections)
    for choice, plugin in _chosen(cls, node):
        yield from (f"{join(path, choice)}.{name}" for name in settings_of(plugin))


def _plugin(name: str, child: Node, whole: Whole) -> str | None:
    """Say what to write if `name` is a plug-in, given as if it were a setting."""
    value = child.plain()
    for path, choice in _choices(whole.cls, ""):
        if name not in choice.open().names():
            continue
        at_top = whole.root.value.get(name) is child
        prefix, _, setting = path.rpartition(".")
        what = f"unknown here; {name!r} is {'an' if setting[0] in 'aeiou' else 'a'} {setting}"
        if value is False:
            return f"{what}: leave this out"
        written = _flow({"name": name, **value}) if isinstance(value, dict) else f"{{name: {name}, ...}}"
        if value in (True, None, {}):
            written = name
        if child.place == COMMAND_LINE:
            return f"{what}: write {path}={written}"
        line = f"{setting}: {written}"
        return f"{what}: write {f'{prefix}: {{{line}}}' if prefix and at_top else line}"
    return None


def _choices(cls: type, path: str) -> Iterator[tuple[str, Choice]]:
    """All settings of a section, and of those in it, that name a plug-in."""
    for name, hint in settings_of(cls).items():
        if choice := choice_in(hint):
            yield join(path, name), choice
        elif isinstance(hint, type) and is_dataclass(hint) and not hasattr(hint, "parse"):
            yield from _choices(hint, join(path, name))


def _child(node: Node, name: str) -> Node:
    return node.value.get(name, node.with_value(None)) if isinstance(node.value, dict) else node.with_value(None)


def _chosen(cls: type, node: Node) -> Iterator[tuple[str, type]]:
    """The section's settings that name a plug-in, with the plug-in that each names."""
    for setting, hint in settings_of(cls).items():
        choice, name = choice_in(hint), _name(node, setting, cls)
        if choice and isinstance(name, str) and (called := choice.open().unfolded(name)[0]) in choice.open().names():
            try:
                yield setting, choice.open().load(called)
            except SettingError:
                continue


def _name(node: Node, setting: str, cls: type) -> Any:
    value = _child(node, setting).plain()
    default = defaults_of(cls).get(setting)
    return value.get("name", default) if isinstance(value, dict) else value or default


def _long(node: Node, setting: str, cls: type) -> dict[str, Any]:
    """The long form of a plug-in, as it is written."""
    value = _child(node, setting).plain()
    return {"name": _name(node, setting, cls), **(value if isinstance(value, dict) else {})}


def _line(setting: str, value: dict[str, Any], given: Node) -> str:
    return f"{setting}={value!r}" if given.place.endswith("(...)") else f"{setting}: {_flow(value)}"


def _below(home: str, given: Node) -> str:
    value: Any = given.plain()
    for name in reversed(home.split(".")[1:]):
        value = {name: value}
    return f"{home.partition('.')[0]}: {_flow(value)}"


def _flow(value: Any) -> str:
    from volary.session.resolved import flow

    return flow(value).replace('"..."', "...")
