"""The known links between the ranks of a group: their topology, and what was measured over them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from volary.comm.groups.leading import from_leader
from volary.comm.topology.links import Links
from volary.comm.topology.measuring import find
from volary.comm.topology.route_choice import choose
from volary.comm.topology.switch_points import SwitchPoints, load
from volary.comm.topology.tournament import message_s, tournament
from volary.exchange.choice.costs import LinkCosts
from volary.exchange.overlap.broadcasts import Broadcasts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from volary.comm.groups.group import Bulletin, Group
    from volary.comm.sums.route import BufferShape
    from volary.comm.topology.topology import Topology


class KnownLinks:
    """Found once for a group, by a collective call. topology: a file that describes it.

    Raises SettingError, on all ranks, if the file does not fit.
    """

    def __init__(self, group: Group, topology: str | None) -> None:
        self._links = Links(group)
        self.topology = find(self._links, Path(topology) if topology is not None else None)
        self._measured = _measured(group.bulletin, self.topology)

    def costs(self, *, levels: bool) -> LinkCosts:
        """The costs of the links: measured if the topology does not say. A collective call.

        levels: sums inside nodes come before those between them.
        """
        nodes = self.topology.nodes
        known = [self.topology.within_bytes_per_s, self.topology.between_bytes_per_s]
        # inside one machine, where every rank sends for itself
        ends = self.topology.leaders if len(nodes) > 1 else list(self.topology.order)
        rates = [rate for rate in known if rate] or list(tournament(self._links, ends).values())
        local = max(len(ranks) for ranks in nodes) if len(nodes) > 1 else 1
        return LinkCosts(self._links.size, local, min(rates), levels, message_s(self._links, ends))

    def route(self, wanted: str, shapes: Sequence[BufferShape]) -> tuple[str, str]:
        """The route of sums of these buffers, and why. wanted: as set, or "auto". Raises SettingError as `choose`."""
        largest_bytes = max(shape.numel * shape.dtype.itemsize for shape in shapes)
        preferred = self._measured.best("all_reduce", largest_bytes) if self._measured is not None else None
        return choose(wanted, self.topology, shapes, preferred)

    def broadcasts(self) -> Broadcasts:
        """Broadcasts over these links."""
        return Broadcasts(self._links, self.topology, self._measured)


def _measured(bulletin: Bulletin, topology: Topology) -> SwitchPoints | None:
    """The ways that `volary bench collectives` found fastest here, as rank 0 keeps them; None if it has none."""
    if len(topology.nodes) == 1:
        return None

    def kept() -> dict[str, Any] | None:
        known = load(topology, "gloo")
        return None if known is None else {"ways": known.ways, "largest": known.largest}

    posted = from_leader(bulletin, "switch-points", kept)
    return SwitchPoints(**posted) if posted is not None else None
