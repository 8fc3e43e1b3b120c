"""A room of plug-ins: a package in which every public file is one, called by the file's name."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from volary.errors import SettingError


@dataclass(frozen=True)
class Room:
    """Lists a package's plug-ins by listing its folder and loads one by its name.

    package: the dotted name of the package. constant: what each file calls its plug-in (`CODEC = TopK`).
    protocol: "module:class", whose public members every plug-in has. by_pattern: "module:class" of what holds several
    plug-ins by pattern, as its `parts`, if the setting may be such a mapping. moved: names that were here, and the
    package that has them now. aliases: other names, each for a plug-in and some of its settings. by_setting: plug-ins
    that are meant by a mapping without a name that has a setting called as they are. by_prefix: plug-ins that are meant
    by a name with theirs in front, as "timm:resnet26": what is behind the colon is their setting `model`.
    """

    package: str
    constant: str
    protocol: str | None = None
    by_pattern: str | None = None
    moved: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    by_setting: tuple[str, ...] = ()
    by_prefix: tuple[str, ...] = ()

    def names(self) -> list[str]:
        """All plug-ins there are, by listing the folder: nothing of them is imported."""
        folder = Path(import_module(self.package).__file__ or "").parent
        return list(_listed(folder, folder.stat().st_mtime_ns))

    def unfolded(self, name: str) -> tuple[str, Mapping[str, Any]]:
        """The plug-in's own name, and the settings that `name` gives it, if it is an alias; else `name`, and none."""
        prefix, _, model = name.partition(":")
        if prefix in self.by_prefix and model:
            return prefix, {"model": model}
        return self.aliases.get(name, (name, {}))

    def load(self, name: str) -> Any:
        """The plug-in called `name`. Raises SettingError, with the nearest name, if there is none, or if it lacks a
        member of the room's protocol.
        """
        known = self.names()
        if name in known:
            return self._complete(name, getattr(import_module(f"{self.package}.{name}"), self.constant, None))
        raise unknown(name, [*known, *self.aliases])

    def loaded_protocol(self) -> Any:
        """The class whose public members every plug-in has."""
        assert self.protocol is not None
        module, _, called = self.protocol.partition(":")
        return getattr(import_module(module), called)

    def patterned(self, parts: Mapping[str, Any]) -> Any:
        """Return the setting that holds these plug-ins, each by its pattern."""
        assert self.by_pattern is not None
        module, _, called = self.by_pattern.partition(":")
        return getattr(import_module(module), called)(parts)

    def parts_of(self, value: Any) -> Mapping[str, Any] | None:
        """The plug-ins in what `patterned` made, by pattern; None if `value` is anything else."""
        kind = type(value)
        return value.parts if f"{kind.__module__}:{kind.__qualname__}" == self.by_pattern else None

    def _complete(self, name: str, plugin: Any) -> Any:
        """The plug-in, if it has all that its protocol asks for: a missing member would be found in mid-run."""
        where = f"{self.package}.{name}"
        if plugin is None:
            raise SettingError(f"{where} has no {self.constant}, which names the plug-in of that file")
        if self.protocol is None:
            return plugin
        protocol, module = self.loaded_protocol(), self.protocol.partition(":")[0]
        called = protocol.__name__
        members = {*dir(protocol), *protocol.__annotations__}
        has = {*dir(plugin), *(one.name for one in (fields(plugin) if is_dataclass(plugin) else ()))}
        lacks = (members - has) | getattr(plugin, "__abstractmethods__", frozenset())
        if missing := sorted(member for member in lacks if not member.startswith("_")):
            raise SettingError(f"{where} lacks {', '.join(missing)}; see {called} in {module}")
        return plugin


@functools.cache
def _listed(folder: Path, _changed_ns: int) -> tuple[str, ...]:
    """The public files of a folder as it was last changed: each setting that is read asks for them."""
    return tuple(sorted(m.name for m in iter_modules([str(folder)]) if not m.ispkg and not m.name.startswith("_")))


def unknown(name: str, known: Sequence[str]) -> SettingError:
    """Return the error for a name that is none of `known`: it names the nearest."""
    plain = name.lower().replace("_", "")
    within = [one for one in known if len(one) > 3 and one.replace("_", "") in plain]  # as cosine in CosineAnnealingLR
    same = [one for one in known if one.lower() == name.lower()]
    near = same or difflib.get_close_matches(name, known, n=1) or sorted(within, key=len)[-1:]
    hint = f"did you mean {near[0]!r}? " if near else ""
    return SettingError(f"unknown name {name!r}; {hint}Known: {', '.join(known)}")
