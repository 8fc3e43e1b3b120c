"""Settings before they have types: a tree of plain values, each knowing where it was written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final


class Fault(Enum):
    """Stands for a value that could not be read; its problem is noted already."""

    FAULT = 0


FAULT: Final = Fault.FAULT


@dataclass(frozen=True)
class Node:
    """A value as the user wrote it.

    value: a scalar, a dict of name to Node, a list of Node, or (from Python) any object.
    place, key_place: where the value and the key before it stand, for messages.
    folder: what a relative path in it is relative to.
    """

    value: Any
    place: str
    key_place: str
    folder: Path

    def below(self, path: str) -> Node:
        """The node at the dotted `path` below this one, or the last one on the way there that exists.

        A place in a list is a number from 0.
        """
        node = self
        for name in path.split("."):
            if isinstance(node.value, list) and name.isdecimal() and int(name) < len(node.value):
                node = node.value[int(name)]
            elif isinstance(node.value, dict) and name in node.value:
                node = node.value[name]
            else:
                break
        return node

    def plain(self) -> Any:
        """The value without places, as dicts, lists and scalars."""
        if isinstance(self.value, dict):
            return {name: child.plain() for name, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    def leaves(self, path: str) -> Iterator[tuple[Node, str]]:
        """All below this node, called `path`, that hold no others, or the node itself; each with its dotted name."""
        if isinstance(self.value, dict):
            for name, child in self.value.items():
                yield from child.leaves(join(path, name))
        elif isinstance(self.value, list):
            for child in self.value:
                yield from child.leaves(path)
        else:
            yield self, path

    def with_value(self, value: Any) -> Node:
        """A node at the same place of the file, with another value."""
        return Node(value, self.place, self.key_place, self.folder)


def from_python(value: Any, place: str, folder: Path) -> Node:
    """A tree of what a program passed: mappings and sequences become branches, all else stays as it is."""
    if isinstance(value, Mapping):
        value = {str(name): from_python(child, place, folder) for name, child in value.items()}
    elif isinstance(value, (list, tuple)):
        value = [from_python(child, place, folder) for child in value]
    return Node(value, place, place, folder)


def join(path: str, name: str) -> str:
    """The dotted name of setting `name` in the section `path`."""
    return f"{path}.{name}" if path else name
