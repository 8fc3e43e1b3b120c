"""Connections of a simulated world. Each keeps the order of what it carries, and no two know of each other: what is
sent over one may overtake all others. A connection that breaks loses what is on its way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simulation._processes import Process
from simulation._world import World


class Network:
    """How long messages take, and who cannot reach whom for now."""

    def __init__(self, world: World, delay_s: float = 0.002) -> None:
        self.world, self.delay_s = world, delay_s
        self._apart_until: dict[frozenset[Process], float] = {}

    def connect(self, caller: Process, called: Process) -> tuple[Port, Port]:
        """The two ends of a new connection, to be given their `received` and `closed`; refused if `called` is dead."""
        ends = Port(self, caller), Port(self, called)
        ends[0].other, ends[1].other = ends[1], ends[0]
        if not called.up:
            ends[1].end()
        return ends

    def part(self, one: Process, other: Process, for_s: float) -> None:
        """Carry nothing between two processes for a while; afterwards what was sent in it arrives."""
        self._apart_until[frozenset((one, other))] = self.world.now + for_s

    def reaches(self, caller: Process, called: Process) -> bool:
        """Whether somebody answers there, right now."""
        apart_until = self._apart_until.get(frozenset((caller, called)), 0.0)
        return called.up and not called.paused and apart_until <= self.world.now

    def arrival(self, sender: Process, receiver: Process) -> float:
        """When something arrives that is sent now."""
        leaves = self.world.now
        if self._apart_until:
            leaves = max(leaves, self._apart_until.get(frozenset((sender, receiver)), 0.0))
        return leaves + self.world.about(self.delay_s)


class Port:
    """One end of a connection. received, closed: what its process does when a message, and when the end, comes."""

    other: Port
    received: Callable[[Any], None]
    closed: Callable[[], None]

    def __init__(self, network: Network, process: Process) -> None:
        self.network, self.process = network, process
        self.open = True  # as this end sees it
        self._last_arrives = 0.0
        process.ports.append(self)

    def send(self, message: Any) -> None:
        """To the other end; lost if the connection breaks before it arrives, or has already."""
        if self.open:
            self.other._expect(self.network.arrival(self.process, self.other.process), self.other._take, message)

    def end(self) -> None:
        """Close this end; the other learns of it after all that was sent before."""
        if self.open:
            self.open = False
            self.other._expect(self.network.arrival(self.process, self.other.process), self.other._lose)

    def snap(self) -> None:
        """Break the connection: what is on its way is lost, and each end learns of it in its own time."""
        for port in (self, self.other):
            known_at = self.network.world.now + self.network.world.about(self.network.delay_s)
            port._last_arrives = max(port._last_arrives, known_at)  # what is sent from now on arrives never
            self.network.world.at(known_at, port.process.do, port._lose)

    def _expect(self, at_s: float, call: Callable[..., None], *arguments: Any) -> None:
        self._last_arrives = max(self._last_arrives, at_s)
        self.network.world.at(self._last_arrives, self.process.do, call, *arguments)

    def _take(self, message: Any) -> None:
        if self.open:
            self.received(message)

    def _lose(self) -> None:
        if self.open:
            self.open = False
            self.closed()
