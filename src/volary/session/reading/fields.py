"""The settings of a class: its dataclass fields, with their types and defaults."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, get_type_hints

_KNOWN: dict[Any, dict[str, Any]] = {}


def settings_of(cls: Any) -> dict[str, Any]:
    """Name to type of each setting of a dataclass, in the order of declaration; `Choice` is kept."""
    if cls not in _KNOWN:
        hints = get_type_hints(cls, include_extras=True)
        _KNOWN[cls] = {field.name: hints[field.name] for field in fields(cls) if field.init}
    return _KNOWN[cls]


def defaults_of(cls: Any) -> dict[str, Any]:
    """Name to default of each setting that has one."""
    return {field.name: _default(field) for field in fields(cls) if field.init and not _required(field)}


def required_of(cls: Any) -> list[str]:
    """The names of the settings that have no default."""
    return [field.name for field in fields(cls) if field.init and _required(field)]


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _default(field: Field[Any]) -> Any:
    if field.default is not MISSING:
        return field.default
    made: Any = field.default_factory
    return made if is_dataclass(made) else made()  # a plug-in or a section is read as one that says nothing
