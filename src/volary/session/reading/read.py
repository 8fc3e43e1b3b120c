"""A session file and its overrides, read as one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from volary.session.elsewhere import Whole
from volary.session.reading.overrides import apply
from volary.session.reading.problems import Problems
from volary.session.reading.reader import Reader
from volary.session.reading.yaml_file import read_file

T = TypeVar("T")


def read(cls: type[T], path: Path, overrides: Sequence[str] = ()) -> T:
    """The `cls` (a Session) that the file describes. Raises SessionError with every problem of file and overrides."""
    problems = Problems()
    root = read_file(path, problems)
    if root is None:
        problems.raise_if_any()
        raise AssertionError("a file that is not read has a problem")
    apply(root, overrides, cls, problems)
    session: T = Reader(problems, Whole(cls, root)).build(cls, root, "")
    problems.raise_if_any()
    return session
