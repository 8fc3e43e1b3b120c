"""The engine starts Volary: who am I, and where do we meet? One file per launcher. Guide: docs/engines.md"""

from __future__ import annotations

import os
from dataclasses import replace

from volary.errors import BadInput
from volary.placement._base import Place, Placement, text, whole
from volary.plugins import Room

ROOM = Room(__name__, "PLACEMENT", protocol="volary.placement._base:Placement")

__all__ = ["ROOM", "Place", "find", "look", "text"]


def find(environment: os._Environ[str] | dict[str, str] = os.environ) -> Place:
    """This process's place. Raises BadInput if no launcher is recognised, or two at once."""
    place = look(environment)
    if place is None:
        raise BadInput(
            f"no launcher started this process (looked for {', '.join(ROOM.names())}); "
            "start a run with `volary train session.yaml`, or `python -m volary.worker session.yaml` by a launcher"
        )
    return place


def look(environment: os._Environ[str] | dict[str, str] = os.environ) -> Place | None:
    """This process's place, or None if no launcher is recognised. Raises BadInput if two are."""
    rules: list[Placement] = [ROOM.load(name)() for name in ROOM.names()]
    found = [(rule.allocates, place) for rule in rules if (place := rule.find(environment)) is not None]
    places = [place for allocates, place in found if not allocates] or [place for _, place in found]
    if not places:
        return None
    if len(places) > 1:
        raise BadInput(f"started by {places[0].launcher} and by {places[1].launcher} at once; use one launcher")
    place = places[0]
    if "VOLARY_FIRST" not in environment:
        return place
    # launchers count from 0, also those that join a run, and one of several knows of its own processes alone
    first = whole(environment, "VOLARY_FIRST", "volary")
    size = "VOLARY_WORLD_SIZE"
    everybody = whole(environment, size, "volary") if size in environment else place.world_size + first
    return replace(place, rank=place.rank + first, world_size=everybody)
