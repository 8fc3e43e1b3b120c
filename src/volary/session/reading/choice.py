"""A setting whose value is the name of a plug-in, and whose other keys are that plug-in's settings."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from volary.errors import SettingError
from volary.plugins import Room
from volary.session.values.reference import FORMS


@dataclass(frozen=True)
class Choice:
    """Annotates a field: `codec: Annotated[Any, Choice("volary.codec")] = "none"`.

    room: the package whose files are the plug-ins; it is imported when a session names one of them.
    user: whether code of the user's own is accepted too, as "package.module:attr" or "file.py:attr". beside: settings
    of the room's protocol that it has as well: they are none of its arguments.
    """

    room: str
    user: bool = False
    beside: tuple[str, ...] = ()

    def open(self) -> Room:
        """The room of the plug-ins, imported."""
        room: Room = import_module(self.room).ROOM
        return room

    def in_words(self) -> str:
        """Say what is accepted; list the room's folder and import no plug-in."""
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
