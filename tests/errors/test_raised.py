"""An error of the user's own code: their file, line and frames first, ours and those of libraries folded."""

from __future__ import annotations

import json
import re
import sysconfig
import tomllib
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest
import torch

from volary.errors.raised import LIBRARIES, Raised, owner, raised
from volary.network import build_loss
from volary.network.flow import Flow
from volary.network.losses.cross_entropy import CrossEntropy


def written(text: str, file: str = "net.py") -> ModuleType:
    """A file of the user's, imported from the folder that the test stands in."""
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(text)
    loader = SourceFileLoader(Path(file).stem, str(Path.cwd() / file))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def caught(call: object, *arguments: object) -> Raised:
    """The account of the exception that a call raises. This file's frame is a user's, too, as are all tests."""
    try:
        call(*arguments)  # type: ignore[operator]
    except BaseException as error:
        assert error.__traceback__ is not None
        return raised(error.with_traceback(error.__traceback__.tb_next))
    raise AssertionError("nothing was raised")


NET = """\
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 2)
    def forward(self, x):
        return self.fc(x)
"""


def test_the_innermost_frame_of_the_user_is_named_and_those_of_others_are_counted():
    net = written(NET).Net()
    found = caught(net, torch.zeros(1, 3))
    assert found.place == "net.py:7 in forward"
    assert found.error.startswith("RuntimeError: ")
    assert found.sentence == f"{found.place}: {found.error}"
    assert found.lines[:2] == ("net.py:7 in forward", "    return self.fc(x)")
    assert len(found.lines) == 3
    assert found.lines[2].endswith(" frames of torch")


def test_frames_of_volary_between_the_users_own_are_folded_too():
    net = written(NET).Net()
    try:
        Flow(net, build_loss(CrossEntropy()), "try").dry_run(torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64), 2)
    except Exception as error:
        assert error.__cause__ is not None
        found = raised(error.__cause__)
    assert found.place == "net.py:7 in forward"
    assert found.lines[-1].endswith(" frames of volary and torch")


def test_the_users_frames_are_shown_outermost_first_with_their_source():
    module = written("def outer():\n    inner()\n\ndef inner():\n    raise KeyError('width')\n")
    found = caught(module.outer)
    assert found == Raised(
        "net.py:5 in inner",
        "KeyError: 'width'",
        ("net.py:2 in outer", "    inner()", "net.py:5 in inner", "    raise KeyError('width')"),
    )


def test_endless_recursion_is_cut_in_the_middle():
    module = written("def again(n):\n    return again(n + 1)\n")
    found = caught(module.again, 0)
    assert found.error.startswith("RecursionError")
    assert len(found.lines) < 30
    assert any(line.startswith("... ") and line.endswith(" more of your frames") for line in found.lines)


def test_notes_more_lines_of_text_and_causes_are_told():
    module = written(
        "def load(n):\n"
        "    try:\n"
        "        {}['a']\n"
        "    except KeyError as error:\n"
        "        wrong = ValueError('first\\nsecond')\n"
        "        wrong.add_note('reading sample 7')\n"
        "        raise wrong from error\n"
    )
    found = caught(module.load, 7)
    assert found.error == "ValueError: first"
    assert found.lines[:2] == ("second", "reading sample 7")
    assert found.lines[-1] == "caused by net.py:3 in load: KeyError: 'a'"


def test_an_error_while_another_was_handled_tells_which_unless_that_was_suppressed():
    module = written(
        "def shown():\n    try:\n        1 / 0\n    except ZeroDivisionError:\n        raise ValueError\n"
        "def hidden():\n    try:\n        1 / 0\n    except ZeroDivisionError:\n        raise ValueError from None\n"
    )
    assert caught(module.shown).error == "ValueError"
    assert caught(module.shown).lines[-1] == "while handling net.py:3 in shown: ZeroDivisionError: division by zero"
    assert caught(module.hidden).lines[-1] == "    raise ValueError from None"


def test_a_syntax_error_of_a_file_has_the_files_own_line():
    try:
        compile("x = 1\ndef f(:\n", str(Path.cwd() / "net.py"), "exec")
    except SyntaxError as error:
        found = raised(error.with_traceback(None))
    assert found.place == "net.py:2"


def test_an_error_without_a_frame_of_the_user_keeps_its_whole_traceback():
    try:
        json.loads("{")
    except ValueError as error:
        assert error.__traceback__ is not None
        found = raised(error.with_traceback(error.__traceback__.tb_next))
    assert found.place == ""
    assert found.sentence == found.error
    assert found.lines[0] == "Traceback (most recent call last):"
    assert found.lines[-1].endswith(found.error)


def test_code_of_the_user_that_is_installed_like_a_package_is_still_the_users():
    module = written("def f():\n    raise ValueError('boom')\n", "lib/site-packages/their_nets/nets.py")
    found = caught(module.f)
    assert found.place == "lib/site-packages/their_nets/nets.py:2 in f"


def test_an_error_in_what_volary_stands_on_is_not_blamed_on_the_user(monkeypatch):
    names = {"pillow": "PIL", "ruamel.yaml": "ruamel"}
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    needed = [re.split(r"[>=<]", one)[0] for one in project["dependencies"]]
    assert sorted(LIBRARIES) == sorted(names.get(name, name) for name in needed)
    module = written("def f():\n    raise ValueError('boom')\n", "lib/site-packages/PIL/Image.py")
    found = caught(module.f)
    assert (found.place, found.lines[0]) == ("", "Traceback (most recent call last):")


def test_a_file_outside_the_current_folder_is_named_in_full(tmp_path_factory):
    there = tmp_path_factory.mktemp("elsewhere") / "net.py"
    module = written("def f():\n    raise ValueError('boom')\n", str(there))
    assert caught(module.f).place == f"{there}:2 in f"


def test_an_error_whose_text_cannot_be_read_is_still_told():
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def broken() -> None:
        raise Broken

    assert caught(broken).error == "Broken: (its text cannot be read)"


@pytest.mark.parametrize(
    ("file", "whose"),
    [
        (torch.__file__, "torch"),
        (owner.__code__.co_filename, "volary"),
        (str(Path(sysconfig.get_paths()["stdlib"]) / "json" / "decoder.py"), "python"),
        ("<frozen importlib._bootstrap>", "python"),
        ("/home/me/project/volary/net.py", ""),
        ("/home/me/project/.venv/lib/python3.12/site-packages/transformers/models/bert.py", "transformers"),
        ("/usr/lib/python3/dist-packages/six.py", "six"),
        ("train.py", ""),
    ],
)
def test_every_file_has_an_owner(file, whose):
    assert owner(file) == whose
