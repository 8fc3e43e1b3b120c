"""Checks that what a session names exists, as far as that is quick and before anything starts."""

from __future__ import annotations

from typing import Any

from volary.errors import BadInput
from volary.session.reading.problems import Problems
from volary.session.values.reference import UserObject


def check(session: Any) -> None:
    """Let the user's objects and the data source look for their files. Raises SessionError with all they miss."""
    problems = Problems()
    named = {
        "network": session.network,
        "data.source": session.data.source,
        "loss": session.loss,
        "optimizer": session.optimizer,
    }
    for path, value in named.items():
        checked = isinstance(value, UserObject) or (path == "data.source" and hasattr(value, "check"))
        parts = {"parts": ("train",)} if value is session.data.source and session.data.divided else {}
        for one in (value,) if checked else getattr(value, "references", ()):
            try:
                one.check(**({} if isinstance(one, UserObject) else parts))
            except BadInput as error:
                problems.add("", path, str(error))
    problems.raise_if_any()
