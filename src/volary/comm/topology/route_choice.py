"""Chooses the route of a sum, and says why: as set, else by the topology, else as measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from volary.comm.routes import ROOM
from volary.errors import SettingError

if TYPE_CHECKING:
    from volary.comm.routes._base import RoutePlugin
    from volary.comm.sums.route import BufferShape
    from volary.comm.topology.topology import Topology

SHARED = "shared"  # no route: the ranks of one machine add up in place, and nothing travels


def choose(
    wanted: str, topology: Topology, shapes: Sequence[BufferShape], preferred: str | None = None
) -> tuple[str, str]:
    """The name of the route and the reason, in half a sentence.

    wanted: a route's name, SHARED, or "auto". preferred: the flat route that was measured to be fastest for such sums
    here. Raises SettingError, with the nearest route that can be taken, if the wanted one cannot.
    """
    found, reason = _found(topology, shapes, preferred)
    if wanted == "auto":
        return found, reason
    if refusal := _refusal(wanted, topology, shapes):
        raise SettingError(f"route is {wanted!r}, but {refusal}; nearest: {found}")
    return wanted, "it is the route that was set"


def plugins() -> dict[str, RoutePlugin]:
    """All routes there are, by name."""
    return {name: ROOM.load(name)() for name in ROOM.names()}


def fallback() -> str:
    """The route that can be taken anywhere."""
    return next(name for name, route in plugins().items() if route.anywhere)


def _found(topology: Topology, shapes: Sequence[BufferShape], preferred: str | None) -> tuple[str, str]:
    ranks = len(topology.order)
    if ranks == 1:
        return fallback(), "there is one worker, which has nobody to sum with"
    if reason := _elsewhere(shapes):
        return fallback(), reason
    if len(topology.nodes) == 1:
        return SHARED, f"all {ranks} workers are on one machine"
    for name, route in sorted(plugins().items(), key=lambda one: -one[1].preference):
        if route.preference and not route.refusal(topology):
            return name, f"these were found: {topology}"
    if preferred is not None:
        return preferred, "it was measured to be the fastest for sums of this size on these links"
    return fallback(), topology.unshared or "each worker has a machine of its own"


def _refusal(wanted: str, topology: Topology, shapes: Sequence[BufferShape]) -> str:
    """Why a route cannot be taken; empty if it can."""
    if wanted == SHARED:
        one = len(topology.nodes) == 1
        elsewhere = "" if one else f"the workers are not all on one machine; found: {topology}"
        return _elsewhere(shapes) or (elsewhere and (topology.unshared or elsewhere))
    route = plugins()[wanted]
    return ("" if route.anywhere else _elsewhere(shapes)) or route.refusal(topology)


def _elsewhere(shapes: Sequence[BufferShape]) -> str:
    """Why values cannot be added in the machine's memory; empty if they are there."""
    devices = {shape.device.type for shape in shapes} - {"cpu"}
    return f"the parameters are on {', '.join(sorted(devices))}" if devices else ""
