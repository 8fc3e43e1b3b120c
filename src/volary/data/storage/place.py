"""A setting's path or URL as something to look at and read: `pathlib.Path`, or what a store has in its stead."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from volary.session.values.url import Url

if TYPE_CHECKING:
    from volary.storage.remote_path import RemotePath

    Place = Path | RemotePath


def located(setting: str | Path | Url) -> Place:
    """The place that the setting points to. Raises SettingError for a store whose library is not installed."""
    if isinstance(setting, Path):
        return setting
    if isinstance(setting, str) and "://" not in setting:
        return Path(setting)
    from volary.storage.remote_path import RemotePath

    return RemotePath.of(str(setting))
