"""Rank 0's values to all ranks, the way that is fastest for so many bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.comm.collectives.broadcast import broadcast
from volary.comm.groups.blocking import by_torch

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.topology.links import Links
    from volary.comm.topology.switch_points import SwitchPoints
    from volary.comm.topology.topology import Topology


class Broadcasts:
    """Used from one thread, alike on all ranks. measured: which way was the fastest here; None: as it usually is."""

    def __init__(self, links: Links, topology: Topology, measured: SwitchPoints | None) -> None:
        self._links, self._topology, self._measured = links, topology, measured

    @property
    def sent_bytes(self) -> int:
        """Bytes that broadcasts have put on the wire since the start."""
        return self._links.sent_bytes

    @property
    def received_bytes(self) -> int:
        """Bytes that broadcasts have taken off the wire since the start."""
        return self._links.received_bytes

    def send(self, values: Tensor) -> None:
        """Give all ranks rank 0's contiguous `values`, of any shape. Raises PeerLost."""
        if values.device.type != "cpu":
            by_torch(values, self._links.group)
            return
        size_bytes = values.numel() * values.element_size()
        way = self._measured.best("broadcast", size_bytes) if self._measured is not None else None
        broadcast(self._links, values, 0, self._topology, way)
