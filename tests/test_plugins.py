"""Rooms of plug-ins: what is there loads, and what is not whole is refused before anything starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from volary.errors import SettingError
from volary.plugins import Room

PROTOCOL = """
from abc import ABC, abstractmethod
class Shape:
    sides: int

    def area(self): ...
    def _inner(self): ...

class AbstractShape(ABC):
    @abstractmethod
    def area(self): ...
"""
WHOLE = """
from dataclasses import dataclass

@dataclass
class Square:
    sides: int

    def area(self): ...

SHAPE = Square
"""


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    package = tmp_path / "shapes"
    package.mkdir()
    files = {
        "__init__": "",
        "_base": PROTOCOL,
        "square": WHOLE,
        "blob": "class Blob:\n    sides = 0\n\nSHAPE = Blob\n",
        "hole": "from shapes._base import AbstractShape\n\nclass Hole(AbstractShape):\n    sides = 0\n\nSHAPE = Hole\n",
        "nothing": "",
    }
    for name, text in files.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield Room("shapes", "SHAPE", protocol="shapes._base:Shape")
    for name in [name for name in sys.modules if name.partition(".")[0] == "shapes"]:
        del sys.modules[name]


def test_a_plug_in_is_called_by_its_file_s_name(room):
    assert room.names() == ["blob", "hole", "nothing", "square"]
    assert room.load("square").__name__ == "Square"


def test_a_plug_in_that_comes_later_is_found(room, tmp_path):
    known = room.names()
    (tmp_path / "shapes" / "triangle.py").write_text(WHOLE)
    os.utime(tmp_path / "shapes", ns=(0, 0))  # a clock of a file system may be coarse
    assert room.names() == [*known, "triangle"]


def test_a_plug_in_that_lacks_a_member_of_its_protocol_is_refused_with_the_member_s_name(room):
    with pytest.raises(SettingError, match=r"shapes\.blob lacks area; see Shape in shapes\._base"):
        room.load("blob")


def test_a_plug_in_that_leaves_an_abstract_method_open_is_refused_with_its_name(room):
    with pytest.raises(SettingError, match=r"shapes\.hole lacks area; see Shape in shapes\._base"):
        room.load("hole")


def test_a_file_that_names_no_plug_in_is_refused(room):
    with pytest.raises(SettingError, match=r"shapes\.nothing has no SHAPE"):
        room.load("nothing")
