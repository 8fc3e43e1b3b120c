"""The specification of a training: YAML with line numbers, overrides, defaults; and the same in Python.

A plug-in's settings are the fields of its own class, and only what a session names is imported. Guide: docs/session.md
"""

from volary.session.data_section import Data
from volary.session.reading.choice import Choice
from volary.session.reading.problems import Problem, SessionError
from volary.session.spec import Checkpoint, Evaluate, RunSettings, Session, Strategy, Train
from volary.session.starter import starter
from volary.session.values.period import Period
from volary.session.values.reference import UserObject

__all__ = [
    "Checkpoint",
    "Choice",
    "Data",
    "Evaluate",
    "Period",
    "Problem",
    "RunSettings",
    "Session",
    "SessionError",
    "Strategy",
    "Train",
    "UserObject",
    "starter",
]
