"""All-reduce: every worker keeps all parameters, and contributions are summed among all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from volary.comm.routes import ROOM as ROUTES
from volary.errors import SettingError
from volary.plugins import unknown

if TYPE_CHECKING:
    from volary.codec._base import Codec
    from volary.comm.routes._base import Bulletin, Shape
    from volary.comm.switch_points import SwitchPoints
    from volary.comm.topology import Topology
    from volary.exchange._base import Exchange

MEETING_TIMEOUT_S = 600.0  # the watch beside the data path finds a lost rank within seconds; this is the last resort


@dataclass(frozen=True, kw_only=True)
class AllReduce:
    """Sums in shared memory where all workers are on one machine, else over the route that suits the network."""

    route: str = "auto"  # the way a sum takes: shared, torch, ring, tree, linear, two_level, three_level; auto chooses
    topology: str | None = None  # a file that describes sub-networks (default: found by measuring)

    def __post_init__(self) -> None:
        known = ["auto", "shared", *ROUTES.names()]
        if self.route not in known:
            raise SettingError(f"route is an {unknown(self.route, known)}")
        if self.topology is not None and self.route in ("shared", "torch"):
            others = ", ".join(name for name in known if name not in ("shared", "torch"))
            raise SettingError(
                f"topology is given and route is {self.route!r}, which asks for none; accepted: {others}"
            )

    def build(self, codec: Codec, bulletin: Bulletin, shapes: Sequence[Shape]) -> Exchange:
        """The exchange of buffers of `shapes` among the ranks of the default group, which must have been joined.

        A collective call. Raises SettingError, on all ranks, if the route cannot be taken, or the topology's file does
        not fit.
        """
        from volary.comm.links import Links
        from volary.comm.routes._choose import choose
        from volary.comm.topology import find
        from volary.exchange._broadcasts import Broadcasts
        from volary.exchange._overlapped import Overlapped

        links = Links(bulletin.rank, bulletin.world_size)
        topology = find(bulletin, links, Path(self.topology) if self.topology is not None else None)
        measured = _measured(bulletin, topology)
        largest_bytes = max(shape.numel * shape.dtype.itemsize for shape in shapes)
        preferred = measured.best("all_reduce", largest_bytes) if measured is not None else None
        name, reason = choose(self.route, topology, shapes, preferred)
        if name == "shared":
            try:
                return _in_memory(bulletin, shapes, reason)
            except OSError as error:
                reason = f"shared memory cannot be used: {error}"
                if self.route == "shared":
                    raise SettingError(f"exchange.route is 'shared', but {reason}; accepted: auto, torch") from None
                name = "torch"
        on_cpu = all(shape.device.type == "cpu" for shape in shapes)
        route = ROUTES.load(name)().build(bulletin, shapes, topology)
        return Overlapped(route, Broadcasts(links, topology, measured), f"{name}, since {reason}", overlaps=on_cpu)


def _measured(bulletin: Bulletin, topology: Topology) -> SwitchPoints | None:
    """What `volary bench collectives` found fastest here, by what rank 0 has kept; None if nothing was measured."""
    from volary.comm.switch_points import SwitchPoints, load

    if len(topology.nodes) == 1:
        return None
    if bulletin.rank == 0:
        known = load(topology, "gloo")
        bulletin.post("switch-points", None if known is None else {"ways": known.ways, "largest": known.largest})
    posted = bulletin.read("switch-points", 0)
    return SwitchPoints(**posted) if posted is not None else None


def _in_memory(bulletin: Bulletin, shapes: Sequence[Shape], reason: str) -> Exchange:
    from volary.comm.routes._segments import SharedSum
    from volary.exchange._at_once import AtOnce

    return AtOnce(SharedSum(bulletin, shapes, MEETING_TIMEOUT_S), f"shared memory, since {reason}")


EXCHANGE = AllReduce
