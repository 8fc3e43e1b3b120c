"""Arguments for a user's own function or class, checked against its signature before it is called."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from volary.errors import SettingError

NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def accept(
    function: Callable[..., object],
    called: str,
    given: Mapping[str, Any],
    offered: Mapping[str, Any],
    absent: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """`given`, and of `offered` what the signature names and `given` has not; SettingError if that does not fit.

    called: the subject of the message, such as "network 'net.py:Small'". absent: what would be offered if it were
    known, with what to do about it.
    """
    parameters = _parameters(function)
    if parameters is None:
        return dict(given)
    named = [p.name for p in parameters if p.kind in NAMED]
    if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        _refuse_unknown(called, given, named)
    arguments = {key: value for key, value in offered.items() if key in named} | dict(given)
    missing = [p.name for p in parameters if _required(p) and p.name not in arguments]
    if missing:
        why = [f"; {sentence}" for name, sentence in (absent or {}).items() if name in missing]
        raise SettingError(
            f"{called} needs {', '.join(missing)}; given: {', '.join(given) or 'no arguments'}{''.join(why)}"
        )
    return arguments


def _parameters(function: Callable[..., object]) -> list[inspect.Parameter] | None:
    """The signature's parameters; None where there is none to read, as for some functions written in C."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def _required(parameter: inspect.Parameter) -> bool:
    variadic = parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is inspect.Parameter.empty and not variadic


def _refuse_unknown(called: str, given: Mapping[str, Any], named: list[str]) -> None:
    for key in given:
        if key not in named:
            near = difflib.get_close_matches(key, named, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise SettingError(f"{called} takes no argument {key!r}; {hint}Known: {', '.join(named) or 'none'}")
