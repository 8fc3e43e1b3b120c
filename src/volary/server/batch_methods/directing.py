"""Updates that a method directs: servers find inner products slice by slice, and all do what it says then."""

from __future__ import annotations

from collections.abc import Callable

from volary.comm.control.errors import BadMessage
from volary.server.batch_methods.lbfgs import LbfgsCoordinator
from volary.server.membership.outgoing import Outgoing
from volary.server.membership.replicas import Replicas
from volary.server.protocol.from_members import Products
from volary.server.protocol.to_members import Direct
from volary.server.protocol.vectors import FoundProducts, joined


class Directing:
    """The updates of a run that `method` directs, one after the other. directed: called with each once it is."""

    def __init__(
        self, outgoing: Outgoing, replicas: Replicas, method: LbfgsCoordinator, directed: Callable[[int], object]
    ) -> None:
        self.method = method
        self._outgoing, self._replicas, self._directed = outgoing, replicas, directed
        self._pieces: dict[int, FoundProducts] = {}  # by shard
        self._number, self._loss, self._open = 0, 0.0, False

    def begin(self, number: int, loss: float) -> None:
        """Update `number` is announced, whose batch has this loss: servers find what the method asks for."""
        assert not self._open, f"update {number} is announced, and update {self._number} is not directed"
        self._number, self._loss, self._open, self._pieces = number, loss, True, {}

    def found(self, server: int, report: Products) -> None:
        """A server has found its pieces, nothing of shards without slices; of two that keep a shard the first is heard.

        Raises BadMessage for an update that nobody asked about.
        """
        if report.number > self._number:
            raise BadMessage(f"server {server} has found products of update {report.number}, which it was not asked to")
        if not self._open or report.number < self._number:
            return
        for shard in self._replicas.shards:
            if server in self._replicas.keepers(shard):
                self._pieces.setdefault(shard, report.found.get(shard, FoundProducts()))
        if len(self._pieces) < len(self._replicas.shards):
            return
        self._open = False
        whole = joined(self._pieces[shard] for shard in sorted(self._pieces))
        self._outgoing.to_servers(Direct(self._number, self.method.directs(whole, self._loss)))
        self._directed(self._number)
