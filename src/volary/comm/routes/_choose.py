"""Which route a sum takes, and why: as it was set, else by the topology, else as it was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from volary.errors import SettingError

if TYPE_CHECKING:
    from volary.comm.routes._base import Shape
    from volary.comm.topology import Topology


def choose(wanted: str, topology: Topology, shapes: Sequence[Shape], preferred: str | None = None) -> tuple[str, str]:
    """The name of the route and the reason, in half a sentence.

    wanted: a route's name, or "auto". preferred: the flat route that was measured to be fastest for such sums here.
    Raises SettingError, with the nearest route that can be taken, if the wanted one cannot.
    """
    found, reason = _found(topology, shapes, preferred)
    if wanted == "auto":
        return found, reason
    if refusal := _refusal(wanted, topology, shapes):
        raise SettingError(f"route is {wanted!r}, but {refusal}; nearest: {found}")
    return wanted, "it is the route that was set"


def _found(topology: Topology, shapes: Sequence[Shape], preferred: str | None) -> tuple[str, str]:
    ranks = len(topology.order)
    if ranks == 1:
        return "torch", "there is one worker, which has nobody to sum with"
    if reason := _elsewhere(shapes):
        return "torch", reason
    if len(topology.nodes) == 1:
        return "shared", f"all {ranks} workers are on one machine"
    if topology.equal_subnetworks:
        return "three_level", f"these were found: {topology}"
    if topology.shares_nodes:
        return "two_level", f"these were found: {topology}"
    if preferred is not None:
        return preferred, "it was measured to be the fastest for sums of this size on these links"
    return "torch", topology.unshared or "each worker has a machine of its own"


def _refusal(wanted: str, topology: Topology, shapes: Sequence[Shape]) -> str:
    """Why a route cannot be taken; empty if it can."""
    if wanted == "torch":
        return ""
    if reason := _elsewhere(shapes):
        return reason
    if wanted == "shared" and len(topology.nodes) > 1:
        return topology.unshared or f"the workers are not all on one machine; found: {topology}"
    if wanted == "two_level" and (len(topology.nodes) == 1 or not topology.shares_nodes):
        return topology.unshared or f"it needs several nodes and several workers on one of them; found: {topology}"
    if wanted == "three_level" and not topology.equal_subnetworks:
        return f"it needs two or more sub-networks of as many nodes each; found: {topology}"
    return ""


def _elsewhere(shapes: Sequence[Shape]) -> str:
    """Why values cannot be added in the machine's memory; empty if they are there."""
    devices = {shape.device.type for shape in shapes} - {"cpu"}
    return f"the parameters are on {', '.join(sorted(devices))}" if devices else ""
