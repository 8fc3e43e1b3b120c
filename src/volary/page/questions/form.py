"""A session as a form, with overrides that are being tried, and what is wrong with them in the session's own words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from volary.errors import SettingError
from volary.page.questions.session_text import text_of
from volary.session.pages.document import changed
from volary.session.pages.form import form
from volary.session.reading.problems import SessionError
from volary.session.reading.read import read_as
from volary.session.spec import Session

DRAFT = "session.yaml"  # what a text without a file is called


def tried(path: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """The form's fields with the overrides, or without them if they do not fit; the problems, one a sentence; and the
    file's text with the overrides written into it.
    """
    return _tried(partial(Session.read, path), text_of(path), overrides)


def drafted(text: str, folder: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """The same of the text of a session file that is to be in `folder`."""
    return _tried(partial(read_as, Session, text, DRAFT, folder), text, overrides)


def _tried(read: Callable[[Sequence[str]], Session], text: str, overrides: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"fields": [], "problems": [], "text": changed(text, overrides)}
    try:
        return found | {"fields": [asdict(one) for one in form(read(overrides))]}
    except SessionError as error:
        problems = [{"place": one.place, "setting": one.path, "sentence": one.sentence} for one in error.problems]
    except SettingError as error:
        problems = [{"place": "", "setting": "", "sentence": str(error)}]
    try:
        fields = [asdict(one) for one in form(read(()))] if overrides else []
    except SettingError:
        fields = []
    return found | {"fields": fields, "problems": problems}
