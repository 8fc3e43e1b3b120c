"""The specification of a training: YAML with line numbers, overrides, defaults; and the same in Python.

A plug-in's settings are the fields of its own class, and only what a session names is imported. Guide: docs/session.md
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from volary.session.data_section import Data as Data
    from volary.session.reading.choice import Choice as Choice
    from volary.session.reading.problems import Problem as Problem
    from volary.session.reading.problems import SessionError as SessionError
    from volary.session.spec import Checkpoint as Checkpoint
    from volary.session.spec import Evaluate as Evaluate
    from volary.session.spec import RunSettings as RunSettings
    from volary.session.spec import Session as Session
    from volary.session.spec import Strategy as Strategy
    from volary.session.train_section import Train as Train
    from volary.session.values.period import Period as Period
    from volary.session.values.reference import UserObject as UserObject

_HOME = {
    "Checkpoint": "spec",
    "Choice": "reading.choice",
    "Data": "data_section",
    "Evaluate": "spec",
    "Period": "values.period",
    "Problem": "reading.problems",
    "RunSettings": "spec",
    "Session": "spec",
    "SessionError": "reading.problems",
    "Strategy": "spec",
    "Train": "train_section",
    "UserObject": "values.reference",
}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: whoever needs one value of a setting stays quick."""
    from importlib import import_module

    if name not in _HOME:
        raise AttributeError(f"module 'volary.session' has no attribute {name!r}")
    return getattr(import_module(f"volary.session.{_HOME[name]}"), name)
