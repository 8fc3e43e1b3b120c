"""YAML text to nodes with line and column: YAML 1.2 by ruamel, so `no` is text and `1e-3` is a number."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from volary.session.reading.node import FAULT, Node, join
from volary.session.reading.problems import Problems

SCALARS = ("int", "float", "bool", "null")
TEXT = ("str", "timestamp", "merge", "value")
PREFIX = "tag:yaml.org,2002:"
MOST_DEEP = 100  # a session needs about ten
MOST_VALUES = 100_000  # after aliases are followed: a few lines of them can mean billions


def read_file(path: Path, problems: Problems) -> Node | None:
    """The tree in the file, or None with a problem noted: it is missing, unreadable, empty or no mapping."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        problems.add(str(path), "", "no such file; `volary init` writes one to start from")
    except IsADirectoryError:
        problems.add(str(path), "", "is a folder; accepted: a session file")
    except UnicodeDecodeError as error:
        problems.add(str(path), "", f"is not text: byte {error.start} is not UTF-8")
    except OSError as error:
        problems.add(str(path), "", f"cannot be read: {error.strerror}")
    else:
        return read_text(text, str(path), path.absolute().parent, problems)
    return None


def read_text(text: str, name: str, folder: Path, problems: Problems) -> Node | None:
    """The tree in the text of a file called `name` in `folder`; None with a problem noted if it is no mapping."""
    return _mapping(parse(text, name, folder, problems), name, problems)


def _mapping(root: Node | None, name: str, problems: Problems) -> Node | None:
    if root is None or isinstance(root.value, dict):
        return root
    if root.value is None:
        problems.add(name, "", "is empty; `volary init` writes a session file to start from")
    else:
        kind = "a list" if isinstance(root.value, list) else "a single value"
        problems.add(root.place, "", f"holds {kind}; accepted: settings, each as `name: value`")
    return None


def parse(text: str, name: str, folder: Path, problems: Problems, numbered: bool = True) -> Node | None:
    """Nodes of one YAML document; an empty one is a node of None. None: not YAML, and the problem is noted.

    name: what places begin with. numbered: whether they go on with line and column.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = _composer()
    tree = _Tree(yaml.constructor, name, folder, problems, numbered)
    try:
        document = yaml.compose(text)
        if document is None:
            return Node(None, name, name, folder)
        return tree.node(document, tree.place(document.start_mark), "", ())
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problems.add(tree.place(mark), "", f"is not valid YAML: {_in_words(error)}")
    except YAMLError as error:
        problems.add(name, "", f"is not valid YAML: {' '.join(str(error).split())}")
    except RecursionError:
        problems.add(name, "", "is nested too deeply")
    except OverflowError:
        problems.add(name, "", f"holds more than {MOST_VALUES} values")
    return None


@cache
def _composer() -> Any:
    """A composer of trees of which none is deeper than `MOST_DEEP`."""
    from ruamel.yaml.composer import Composer

    class ShallowComposer(Composer):
        level = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            """ruamel's, which raises RecursionError for what lies too deep."""
            self.level += 1
            if self.level > MOST_DEEP + 1:  # with the scalar
                raise RecursionError
            node = super().compose_node(parent, index)
            self.level -= 1
            return node

    return ShallowComposer


def _in_words(error: Any) -> str:
    """The mistake that the YAML reader found, with the line where what it was reading begins."""
    problem, context, start = error.problem, error.context or "", error.context_mark
    if "found another document" in problem:
        return "a second document begins here; accepted: one session a file"
    if "'\\t' that cannot start any token" in problem:
        return "a tab; YAML indents with spaces"
    for kind, bracket in (("flow mapping", "{"), ("flow sequence", "[")):
        if kind in context and start:
            at = f"line {start.line + 1}, column {start.column + 1}"
            return f"{problem}; is the {bracket!r} at {at} closed?"
    return f"{problem} {context}".strip()


class _Tree:
    """Turns ruamel's nodes into ours; duplicate keys, foreign tags and loops are noted as problems."""

    def __init__(self, constructor: Any, name: str, folder: Path, problems: Problems, numbered: bool) -> None:
        self.constructor, self.name, self.folder = constructor, name, folder
        self.problems, self.numbered = problems, numbered
        self.values = 0

    def place(self, mark: Any) -> str:
        return f"{self.name}:{mark.line + 1}:{mark.column + 1}" if self.numbered and mark else self.name

    def node(self, given: Any, key_place: str, path: str, above: tuple[int, ...]) -> Node:
        self.values += 1
        if self.values > MOST_VALUES:
            raise OverflowError
        place = self.place(given.start_mark)
        if id(given) in above:
            self.problems.add(place, path, "holds itself (an alias to what is around it)")
            return Node(FAULT, place, key_place, self.folder)
        above = (*above, id(given))
        if given.id == "mapping":
            value: Any = self.mapping(given, path, above)
        elif given.id == "sequence":
            value = [self.node(item, self.place(item.start_mark), path, above) for item in given.value]
        else:
            value = self.scalar(given, place, path)
        return Node(value, place, key_place, self.folder)

    def mapping(self, given: Any, path: str, above: tuple[int, ...]) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        for key, child in given.value:
            place = self.place(key.start_mark)
            if key.id != "scalar":
                self.problems.add(place, path, "a name that is a list or a mapping; accepted: text")
                continue
            if key.value in entries:
                first = entries[key.value].key_place
                self.problems.add(place, join(path, key.value), f"is given twice (first at {first})")
                continue
            entries[key.value] = self.node(child, place, join(path, key.value), above)
        return entries

    def scalar(self, given: Any, place: str, path: str) -> Any:
        kind = str(given.tag).removeprefix(PREFIX)
        if kind in TEXT:
            return given.value
        if kind in SCALARS:
            try:
                return self.constructor.construct_object(given)
            except (ValueError, KeyError):
                self.problems.add(place, path, f"is {given.value!r}, which its tag says is {kind}")
                return FAULT
        self.problems.add(place, path, f"has the tag {given.tag}; accepted: plain values without tags")
        return FAULT
