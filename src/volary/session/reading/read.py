"""A session file and its overrides, read as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from volary.session.misplaced import COMMAND_LINE, Whole
from volary.session.reading.node import Node, from_python
from volary.session.reading.overrides import apply
from volary.session.reading.problems import Problems
from volary.session.reading.reader import Reader
from volary.session.reading.yaml_file import read_file, read_text

T = TypeVar("T")


def read(cls: type[T], path: Path, overrides: Sequence[str] = ()) -> T:
    """The `cls` (a Session) that the file describes. Raises SessionError with every problem of file and overrides."""
    problems = Problems()
    root = read_file(path, problems)
    if root is None:
        problems.raise_if_any()
        raise AssertionError("a file that is not read has a problem")
    return _built(cls, root, overrides, problems)


def read_as(cls: type[T], text: str, name: str, folder: Path, overrides: Sequence[str] = ()) -> T:
    """The `cls` that the text of a file called `name` in `folder` describes, which need not be there.

    Raises SessionError likewise.
    """
    problems = Problems()
    root = read_text(text, name, folder, problems)
    if root is None:
        problems.raise_if_any()
        raise AssertionError("a text that is not read has a problem")
    return _built(cls, root, overrides, problems)


def read_from(cls: type[T], settings: Mapping[str, Any], overrides: Sequence[str] = ()) -> T:
    """The `cls` that a program's settings describe. Raises SessionError with every problem of them and overrides."""
    return _built(cls, from_python(settings, COMMAND_LINE, Path.cwd()), overrides, Problems())


def _built(cls: type[T], root: Node, overrides: Sequence[str], problems: Problems) -> T:
    apply(root, overrides, cls, problems)
    session: T = Reader(problems, Whole(cls, root)).build(cls, root, "")
    problems.raise_if_any()
    if located := getattr(getattr(session, "network", None), "located", None):
        located(root.below("network"))
    return session
