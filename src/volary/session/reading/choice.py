"""A setting whose value is the name of a plug-in, and whose other keys are that plug-in's settings."""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from volary.errors import SettingError
from volary.plugins import Room
from volary.session.reading.fields import settings_of
from volary.session.reading.node import FAULT, Node, from_python, join
from volary.session.values.reference import FORMS, UserObject, without_name

if TYPE_CHECKING:
    from volary.session.reading.reader import Reader

PATTERN = frozenset("*?[.")  # in a key: it is no setting's name


@dataclass(frozen=True)
class Choice:
    """Annotates a field: `codec: Annotated[Any, Choice("volary.codec")] = "none"`.

    room: the package whose files are the plug-ins; it is imported when a session names one of them.
    user: whether code of the user's own is accepted too, as "package.module:attr" or "file.py:attr".
    """

    room: str
    user: bool = False

    def open(self) -> Room:
        """The room of the plug-ins, imported."""
        room: Room = import_module(self.room).ROOM
        return room

    def in_words(self) -> str:
        """What is accepted, in words; lists the room's folder and imports no plug-in."""
        room = self.open()
        patterned = '; or several by pattern, as {"fc*": ..., "*": ...}' if room.by_pattern else ""
        return ", ".join(room.names()) + (f"; or your own, as {FORMS}" if self.user else "") + patterned

    def name_of(self, cls: type) -> str:
        """The name under which the room knows this class: its file's. Raises SettingError for a stranger."""
        room = self.open()
        file = cls.__module__.rpartition(".")[2]
        for name in sorted(room.names(), key=lambda known: known != file):
            if room.load(name) is cls:
                return name
        raise SettingError(f"{cls.__qualname__} is not one of {self.room}: {', '.join(room.names())}")

    def read(self, reader: Reader, node: Node, path: str, default: Any) -> Any:
        """The plug-in (or UserObject) that the node names, with the node's other keys as its settings."""
        if isinstance(node.value, UserObject) and self.user:
            arguments = from_python(node.value.arguments, node.place, node.folder)
            return FAULT if reader.read(Any, arguments, path) is FAULT else node.value
        node = self._unfolded(node)
        if not isinstance(node.value, dict):
            return reader.refuse(node, path, self.in_words())
        if self._by_pattern(node.value):
            return self._patterns(reader, node, path)
        entries = dict(node.value)
        name = entries.pop("name", node.with_value(default))
        if not isinstance(name.value, str):
            given = "lacks a name" if "name" not in node.value else f"has the name {name.plain()!r}"
            return reader.fault(name.place, path, f"{given}; accepted: {self.in_words()}")
        if name.value in (room := self.open()).moved:
            return reader.moved(name, node.with_value(entries), path, room.moved[name.value], str(default))
        called, fixed = room.unfolded(name.value)
        for setting in sorted(entries.keys() & fixed):
            return reader.fault(
                entries[setting].place,
                join(path, setting),
                f"is {fixed[setting]} in {name.value!r}; write name: {called}",
            )
        name, entries = name.with_value(called), {key: name.with_value(one) for key, one in fixed.items()} | entries
        try:
            if ":" in name.value and self.user:
                arguments = reader.read(Any, node.with_value(entries), path)
                return FAULT if arguments is FAULT else UserObject.found_from(name.value, name.folder, arguments)
            if self.user and name.value not in self.open().names() and (told := without_name(name.value, name.folder)):
                return reader.fault(name.place, path, told)
            plugin = self.open().load(name.value)
        except SettingError as error:
            return reader.fault(name.place, path, str(error))
        return reader.build(plugin, node.with_value(entries), path)

    def _by_pattern(self, value: dict[str, Node]) -> bool:
        """Whether a mapping gives plug-ins by pattern: a key is no name of a setting."""
        return bool(self.open().by_pattern and "name" not in value and any(set(key) & PATTERN for key in value))

    def _patterns(self, reader: Reader, node: Node, path: str) -> Any:
        found: dict[str, Any] = {}
        for pattern, child in node.value.items():
            where = join(path, pattern)
            if isinstance(child.value, dict) and self._by_pattern(child.value):
                return reader.fault(
                    child.place, where, f"has patterns again; accepted: {', '.join(self.open().names())}"
                )
            found[pattern] = self.read(reader, child, where, None)
        return FAULT if FAULT in found.values() else self.open().patterned(found)

    def _unfolded(self, node: Node) -> Node:
        """A bare name, or a plug-in made in Python, in the long form {name: ..., setting: ...}."""
        if isinstance(node.value, str):
            return node.with_value({"name": node})
        if (parts := self.open().parts_of(node.value)) is not None:
            return from_python(parts, node.place, node.folder)
        if is_dataclass(node.value) and not isinstance(node.value, type):
            name = node.with_value(self.name_of(type(node.value)))
            return node.with_value({"name": name, **settings_as_nodes(node)})
        return node


def settings_as_nodes(node: Node) -> dict[str, Node]:
    """The fields of the dataclass instance in `node` as nodes at the same place."""
    value = node.value
    return {name: from_python(getattr(value, name), node.place, node.folder) for name in settings_of(type(value))}
