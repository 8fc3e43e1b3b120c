"""A function of a notebook becomes a file: with what it uses there, in an order in which it runs, or a sentence."""

from __future__ import annotations

import linecache
import math
from types import ModuleType
from typing import Any

import pytest

from volary.errors import BadInput
from volary.session.own_source import source_of


def notebook(*cells: str) -> dict[str, Any]:
    """The names that the cells define, as in a kernel."""
    known: dict[str, Any] = {"__name__": "__main__"}
    for number, text in enumerate(cells):
        file = f"ipykernel_7/{number}.py"
        linecache.cache[file] = len(text), None, text.splitlines(True), file
        exec(compile(text, file, "exec"), known)
    return known


def elsewhere(source: str) -> Any:
    module = ModuleType("function")
    exec(compile(source, "function.py", "exec"), vars(module))
    return module


def test_what_it_uses_comes_with_it_and_nothing_else():
    known = notebook(
        "import math as m\nfrom math import pi\nunused = object()\nRATES = [0.1, {'a': (1, None)}]",
        "class Base:\n    rate = RATES[0]\n    def get(self):\n        return helper(self.rate)\n",
        "class Net(Base):\n    @property\n    def two(self): return m.floor(2.5)\n",
        "def helper(x, by=RATES[1]['a'][0]):\n    return x + by\nalias = helper\n",
        "def train(worker):\n    local = [Net().get() for _ in range(1)]\n    return local, Net().two, pi, alias(1)\n",
    )
    source = source_of(known["train"])
    assert elsewhere(source).train(None) == known["train"](None) == ([1.1], 2, math.pi, 2)
    assert "unused" not in source


def test_of_two_definitions_of_a_cell_the_later_counts():
    known = notebook("def train(worker):\n    return 1\n\ndef train(worker):\n    return 2\n")
    assert elsewhere(source_of(known["train"])).train(None) == 2


def test_functions_that_call_each_other_are_both_there():
    known = notebook("def odd(n):\n    return n and even(n - 1)\ndef even(n):\n    return n == 0 or odd(n - 1)\n")
    assert elsewhere(source_of(known["even"])).even(4) is True


def test_an_object_of_the_notebook_is_named_with_what_to_do():
    known = notebook("import io\nopened = io.StringIO()\ndef train(worker):\n    return opened.read()\n")
    with pytest.raises(BadInput, match=r"train uses opened, a StringIO that was made in the notebook, .*args="):
        source_of(known["train"])


def test_a_function_without_source_is_refused():
    known: dict[str, Any] = {"__name__": "__main__"}
    exec(compile("def train(worker): pass", "<stdin>", "exec"), known)
    with pytest.raises(
        BadInput, match=r"train was defined at a prompt, where workers cannot find its source; accepted"
    ):
        source_of(known["train"])
