"""Python files of the user's own, compiled before anything starts: what no worker could run is refused here."""

from __future__ import annotations

import warnings
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from pkgutil import get_importer

from volary.errors import SettingError
from volary.errors.raised import shown


def refuse_uncompilable(file: Path) -> None:
    """Raise SettingError, with file and line, if Python cannot compile it. Nothing of it runs."""
    source = file.read_bytes()
    if source.startswith(MAGIC_NUMBER) or get_importer(str(file)) is not None:
        return  # compiled already, or an archive of modules
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the worker that imports it says them
            compile(source, str(file), "exec", dont_inherit=True)
    except SyntaxError as error:
        line = f", in {error.text.strip()!r}" if error.text else ""
        raise SettingError(
            f"{shown(str(file))}:{error.lineno}: {type(error).__name__}: {error.msg}{line}; accepted: a file that "
            "Python compiles"
        ) from None
    except ValueError as error:  # a null byte
        raise SettingError(f"{shown(str(file))}: {error}; accepted: a file that Python compiles") from None


def takes(file: Path, name: str, parameter: str) -> bool | None:
    """Whether a function at the top level of a file, which is not run, takes a parameter; None: it is not seen there.

    One that is decorated may take others than are written there.
    """
    import ast

    try:
        body = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return None
    found = [one for one in body if isinstance(one, ast.FunctionDef) and one.name == name]
    if not found or found[-1].decorator_list:
        return None
    given = found[-1].args
    return given.kwarg is not None or parameter in {one.arg for one in (*given.args, *given.kwonlyargs)}
