"""A number for each class: a list in their order, or by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.plugins import unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

PerClass = tuple[float, ...] | dict[str, float]


def numbers_of(given: PerClass) -> tuple[float, ...]:
    """All numbers that are given."""
    return tuple(given.values()) if isinstance(given, Mapping) else given


def in_order(given: PerClass, names: Sequence[str], setting: str) -> tuple[float, ...]:
    """The numbers in the order of the classes; 1 for one whose name is not given. names: of all classes.

    Raises SettingError for a name that is none of these. setting: where it was written.
    """
    if not isinstance(given, Mapping):
        return given
    for name in given:
        if name not in names:
            raise SettingError(f"{setting}: {unknown(name, names)}")
    return tuple(given.get(name, 1.0) for name in names)
