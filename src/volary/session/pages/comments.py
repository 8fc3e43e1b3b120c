"""Reads the comments beside a class's settings, for the reference page."""

from __future__ import annotations

import ast
import inspect
import io
import threading
import tokenize
from functools import cache
from textwrap import dedent

_ONE_AT_A_TIME = threading.Lock()  # Python 3.11 counts how deep a tree is for all threads together (cpython#106905)


def comments_of(cls: type) -> dict[str, str]:
    """Field name to the comment on the field's own lines."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        found |= _of_class(base)
    return found


@cache  # a base has many heirs
def _of_class(cls: type) -> dict[str, str]:
    try:
        with _ONE_AT_A_TIME:
            return _in_source(dedent(inspect.getsource(cls)))
    except (OSError, TypeError):
        return {}


def _in_source(source: str) -> dict[str, str]:
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    body = next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)).body
    return {
        node.target.id: " ".join(comments[line] for line in _lines(node) if line in comments)
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def _lines(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)
