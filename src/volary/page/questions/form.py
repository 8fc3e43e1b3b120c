"""A session as a form, with overrides that are being tried, and what is wrong with them in the session's own words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from volary.errors import SettingError
from volary.session.pages.form import form
from volary.session.reading.problems import SessionError
from volary.session.spec import Session


def tried(path: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """The form's fields with the overrides, or without them if they do not fit; and the problems, one a sentence."""
    problems: list[dict[str, str]] = []
    try:
        return {"fields": [asdict(one) for one in form(Session.read(path, overrides))], "problems": problems}
    except SessionError as error:
        problems = [{"place": one.place, "setting": one.path, "sentence": one.sentence} for one in error.problems]
    except SettingError as error:
        problems = [{"place": "", "setting": "", "sentence": str(error)}]
    try:
        fields = [asdict(one) for one in form(Session.read(path))] if overrides else []
    except SettingError:
        fields = []
    return {"fields": fields, "problems": problems}
