"""Where an exchange takes place: the ranks' links, what is known of them, and the way that sums take there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from volary.comm.last_resort import LAST_RESORT_S
from volary.comm.links import Links
from volary.comm.routes import ROOM as ROUTES
from volary.comm.routes._choose import choose
from volary.comm.routes._segments import SharedSum
from volary.comm.switch_points import SwitchPoints, load
from volary.comm.topology import find
from volary.errors import SettingError
from volary.exchange._at_once import AtOnce
from volary.exchange._behind import Behind
from volary.exchange._broadcasts import Broadcasts
from volary.exchange._encoded import Encodings
from volary.exchange._factors import FactorSums
from volary.exchange._mixed import Mixed
from volary.exchange._overlapped import Overlapped
from volary.exchange._way import Encoded, Exact, Factors

if TYPE_CHECKING:
    from volary.comm.routes._base import Bulletin, Route, Shape
    from volary.comm.topology import Topology
    from volary.exchange._base import Exchange
    from volary.exchange._error_memory import ErrorMemory
    from volary.exchange._plan import Plan

_BETWEEN_NODES = ("two_level", "three_level")


class Ground:
    """Found once for all exchanges of a run; finding it is a collective call, and so is `build`.

    route: as set, or "auto". topology: a file that describes it. levels: sums inside nodes come before those between
    them. behind: contributions are applied a step late. Raises SettingError, on all ranks, if the file does not fit.
    """

    def __init__(self, bulletin: Bulletin, route: str, topology: str | None, *, behind: bool) -> None:
        self._wanted, self._behind, self.levels = route, behind, False
        self._links = Links(bulletin.rank, bulletin.world_size)
        self.topology = find(bulletin, self._links, Path(topology) if topology is not None else None)
        self._measured = _measured(bulletin, self.topology)

    def build(
        self,
        bulletin: Bulletin,
        plans: Sequence[Plan],
        box: Shape,
        errors: ErrorMemory,
        left_out: Callable[[str], None] | None = None,
    ) -> Exchange:
        """The exchange of buckets with these plans, and after them of a buffer like `box`.

        bulletin: of this exchange alone. errors: what encoded buckets owe. left_out: told of values that are not finite
        and so cannot be encoded; None: NotFinite is raised. Raises SettingError, on all ranks, if the route cannot be
        taken.
        """
        shapes = [*(plan.shape for plan in plans), box]
        ways = [*(plan.way for plan in plans), Exact()]
        exact = [number for number, way in enumerate(ways) if isinstance(way, Exact)]
        name, reason = self._chosen([shapes[number] for number in exact], odd=self._behind or len(exact) < len(ways))
        if name == "shared":
            try:
                shared = SharedSum(bulletin, shapes, LAST_RESORT_S)
                return AtOnce(shared, f"shared memory, since {reason}")
            except OSError as error:
                reason = f"shared memory cannot be used: {error}"
                if self._wanted == "shared":
                    raise SettingError(f"exchange.route is 'shared', but {reason}; accepted: auto, torch") from None
                name = "torch"
        self.levels = name in _BETWEEN_NODES
        dense = ROUTES.load(name)().build(bulletin, [shapes[number] for number in exact], self.topology)
        parts: list[tuple[Route, Sequence[int]]] = [(dense, exact)]
        if encoded := [number for number, way in enumerate(ways) if isinstance(way, Encoded)]:
            # between nodes: in memory that ranks share nothing is gained by fewer bytes
            within = self.topology if self.levels else None
            own = [plans[number] for number in encoded]
            parts.append((Encodings(bulletin.within("encoded"), own, within, errors, left_out), encoded))
        if factors := [number for number, way in enumerate(ways) if isinstance(way, Factors)]:
            parts.append((FactorSums(bulletin, [plans[number] for number in factors]), factors))
        route = Mixed(parts) if len(parts) > 1 else dense
        on_cpu = all(shape.device.type == "cpu" for shape in shapes)
        broadcasts = Broadcasts(self._links, self.topology, self._measured)
        exchange = Overlapped(route, broadcasts, f"{name}, since {reason}", overlaps=on_cpu)
        return Behind(exchange) if self._behind else exchange

    def _chosen(self, shapes: Sequence[Shape], *, odd: bool) -> tuple[str, str]:
        """The route of what travels as it is, and why. odd: not all of that is summed at once."""
        largest_bytes = max(shape.numel * shape.dtype.itemsize for shape in shapes)
        preferred = self._measured.best("all_reduce", largest_bytes) if self._measured is not None else None
        name, reason = choose(self._wanted, self.topology, shapes, preferred)
        if name == "shared" and odd:
            if self._wanted == "shared":
                raise SettingError(
                    "exchange.route is 'shared', but in shared memory nothing travels that could be made fewer bytes, "
                    "or hidden; accepted: auto, torch, or codec none with exchange allreduce, and not behind"
                )
            return "torch", "in shared memory nothing would travel that could be made fewer bytes or hidden"
        return name, reason


def _measured(bulletin: Bulletin, topology: Topology) -> SwitchPoints | None:
    """What `volary bench collectives` found fastest here, by what rank 0 has kept; None if nothing was measured."""
    if len(topology.nodes) == 1:
        return None
    if bulletin.rank == 0:
        known = load(topology, "gloo")
        bulletin.post("switch-points", None if known is None else {"ways": known.ways, "largest": known.largest})
    posted = bulletin.read("switch-points", 0)
    return SwitchPoints(**posted) if posted is not None else None
