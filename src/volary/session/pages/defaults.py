"""The defaults of a plug-in's settings, as a resolved session writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from volary.session.reading.fields import defaults_of, required_of, settings_of
from volary.session.reading.words import choice_in
from volary.session.resolved import flow, plain
from volary.session.spec import Session


def is_default(setting: str, settings: Mapping[str, str]) -> bool:
    """Whether a run's value of a plug-in's setting says nothing: it is null, or the default of the plug-in it chose.

    settings: of the run, by dotted name, a plug-in's name standing for it whole.
    """
    *above, name = setting.split(".")
    plugin = _plugin(above, settings)
    known = {} if plugin is None else _chosen_alone(plugin)
    value = settings.get(setting)
    if name not in known:
        return value == "null"
    return value in ("null", flow(plain(known[name], settings_of(plugin)[name])).strip("\"'"))


def _chosen_alone(plugin: Any) -> dict[str, Any]:
    """The settings that it has if its name is all that is said: some are settled by others."""
    if required_of(plugin):
        return defaults_of(plugin)
    alone = plugin()
    return {name: getattr(alone, name) for name in settings_of(plugin)}


def _plugin(path: list[str], settings: Mapping[str, str]) -> Any:
    """The class of the plug-in that is chosen at this path; None where there is none, or nobody knows it any more."""
    of: Any = Session
    for depth, part in enumerate(path):
        hint = settings_of(of).get(part)
        choice = choice_in(hint)
        if choice is None:
            if hint is None or depth == len(path) - 1:
                return None
            of = hint
            continue
        chosen = settings.get(".".join(path[: depth + 1]), "")
        if depth < len(path) - 1 or chosen not in choice.open().names():
            return None
        of = choice.open().load(chosen)
    return of
