"""Libraries that only some sources need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from volary.errors import SettingError


def needed(module: str, extra: str) -> Any:
    """The module. Raises SettingError with the command that installs it."""
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise SettingError(f"{package} is not installed; accepted: pip install 'volary[{extra}]' first") from None
