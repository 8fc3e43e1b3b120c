"""A function that was defined in a notebook, as a file of its own: its source, and that of all that it uses there."""

from __future__ import annotations

import ast
import dis
import inspect
import linecache
import textwrap
from collections.abc import Callable, Iterator
from types import CodeType, ModuleType
from typing import Any

from volary.errors import BadInput

_MAIN = "__main__"
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def source_of(function: Callable[..., Any]) -> str:
    """A module that defines `function`. Raises BadInput for what it uses that cannot be written down."""
    gathered = _Gathered(function)
    gathered.add(function.__name__, function)
    return "\n".join(["from __future__ import annotations\n", *gathered.imports, *gathered.parts])


class _Gathered:
    """The definitions that the function needs, in an order in which they can be run."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._known: dict[str, Any] = function.__globals__
        self._seen: set[str] = set()
        self.imports: list[str] = []
        self.parts: list[str] = []

    def add(self, name: str, value: Any) -> None:
        """Add what `name` is in the notebook, after all that it needs."""
        if name in self._seen:
            return
        self._seen.add(name)
        home = getattr(value, "__module__", None)
        if isinstance(value, ModuleType):
            self.imports.append(f"import {value.__name__} as {name}")
        elif (inspect.isfunction(value) or inspect.isclass(value)) and home == _MAIN:
            source = _definition(value)
            for used in _used(source):
                if used in self._known:
                    self.add(used, self._known[used])
            self.parts.append(f"{source}\n")
            if value.__name__ != name:
                self.parts.append(f"{name} = {value.__name__}\n")
        elif home and home != _MAIN and hasattr(value, "__qualname__") and "." not in value.__qualname__:
            self.imports.append(f"from {home} import {value.__qualname__} as {name}")
        elif _is_plain(value):
            self.parts.append(f"{name} = {value!r}\n")
        else:
            raise BadInput(
                f"{self._function.__name__} uses {name}, a {type(value).__name__} that was made in the notebook, where "
                "workers are not; accepted: one that is made in the function, or given to it by volary.launch(args=...)"
            )


def _definition(value: Any) -> str:
    """The source of a function or class, from the cell that defined it."""
    for code in _codes(value):
        text = "".join(linecache.getlines(code.co_filename))
        for node in reversed(ast.parse(text).body if text else []):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == value.__name__:
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                return textwrap.dedent("\n".join(text.splitlines()[first - 1 : node.end_lineno]))
    raise BadInput(
        f"{value.__name__} was defined at a prompt, where workers cannot find its source; accepted: a function of a "
        "file or of a notebook"
    )


def _codes(value: Any) -> Iterator[CodeType]:
    for one in (value, *vars(value).values()):
        inner = getattr(one, "fget", None) or getattr(one, "__func__", one)  # of a property, of a class method
        if isinstance(code := getattr(inner, "__code__", None), CodeType):
            yield code


def _used(source: str) -> list[str]:
    """The global names that a definition looks up, when it is run or called."""
    names: dict[str, None] = {}

    def look(code: CodeType) -> None:
        for instruction in dis.get_instructions(code):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                names[instruction.argval] = None
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                look(inner)

    look(compile(f"from __future__ import annotations\n{source}", "<notebook>", "exec", dont_inherit=True))
    return list(names)


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_plain(key) and _is_plain(one) for key, one in value.items())
    if type(value) in (list, tuple, set, frozenset):
        return all(map(_is_plain, value))
    return type(value) in _PLAIN
