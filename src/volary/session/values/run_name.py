"""Checks the name of a run, or a sweep: it is the name of a folder, and a part of paths and addresses."""

from __future__ import annotations

import re

from volary.session.checks import require

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_ACCEPTED = "letters, digits, '.', '_' and '-', at most 100, the first a letter or a digit"


def check_name(setting: str, name: str) -> None:
    """Raise SettingError, naming `setting`, if a folder of runs must not have something of that name."""
    require(bool(_NAME.fullmatch(name)), setting, repr(name), _ACCEPTED)
