"""The one line with which a setting's range is checked where the setting is declared."""

from __future__ import annotations

from volary.errors import SettingError

POSITIVE = "above 0"
WHOLE = "a whole number, 1 or more"


def require(holds: bool, name: str, value: object, accepted: str) -> None:
    """Raise SettingError("<name> is <value>; accepted: <accepted>") unless `holds`; readers add file and line."""
    if not holds:
        whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
        raise SettingError(f"{name} is {f'{value:.0f}' if whole else value}; accepted: {accepted}")
