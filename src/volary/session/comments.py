"""What the comments beside a class's settings say, for the reference page."""

from __future__ import annotations

import ast
import inspect
import io
import tokenize
from textwrap import dedent


def comments_of(cls: type) -> dict[str, str]:
    """Field name to the comment on its lines, going on over lines that hold only a comment, indented further."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        try:
            source = dedent(inspect.getsource(base))
        except (OSError, TypeError):
            continue
        found.update(_in_source(source))
    return found


def _in_source(source: str) -> dict[str, str]:
    comments = {
        token.start[0]: (token.start[1], token.string.lstrip("# "), token.line.lstrip().startswith("#"))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    body = next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)).body
    found = {}
    for node in body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        words = [comments[line][1] for line in range(node.lineno, _last(node) + 1) if line in comments]
        line = _last(node) + 1
        while line in comments and comments[line][2] and comments[line][0] > node.col_offset:
            words.append(comments[line][1])
            line += 1
        found[node.target.id] = " ".join(words)
    return found


def _last(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno
