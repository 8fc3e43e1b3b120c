"""Updates that wait for the norm of their gradient: servers find it piece by piece, and all clip by one factor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from volary.comm.control.errors import BadMessage
from volary.server.membership.outgoing import Outgoing
from volary.server.membership.replicas import Replicas
from volary.server.protocol.from_members import PartialNorms
from volary.server.protocol.norms import ClipNorm, combined
from volary.server.protocol.to_members import Clip, Clipped
from volary.server.protocol.updates import Contribution


@dataclass
class _Norm:
    """The norm of one update. asking: contributions whose workers wait for it. pieces: by shard."""

    clip: ClipNorm
    asking: Sequence[Contribution]
    pieces: dict[int, float] = field(default_factory=dict)


class GradientNorms:
    """The gradient norms of a run's updates; updates without a bound are not among them."""

    def __init__(self, outgoing: Outgoing, replicas: Replicas) -> None:
        self._outgoing, self._replicas = outgoing, replicas
        self._open: dict[int, _Norm] = {}
        self._newest = 0

    def begin(self, number: int, clip: ClipNorm, asking: Sequence[Contribution]) -> None:
        """Announce update `number`, which servers apply once its norm is known. asking: who gets the norm."""
        self._newest = number
        self._open[number] = _Norm(clip, asking)

    def measured(self, server: int, report: PartialNorms) -> None:
        """A server has found its pieces, 0 of shards without slices; of two that keep a shard, the first is heard.

        Raises BadMessage for an update that was not to be measured.
        """
        if report.number > self._newest:
            raise BadMessage(f"server {server} has measured update {report.number}, which it was not asked to")
        if (norm := self._open.get(report.number)) is None:
            return
        for shard in self._replicas.shards:
            if server in self._replicas.keepers(shard):
                norm.pieces.setdefault(shard, report.norms.get(shard, 0.0))
        if len(norm.pieces) < len(self._replicas.shards):
            return
        del self._open[report.number]
        whole = combined((norm.pieces[shard] for shard in sorted(norm.pieces)), norm.clip.kind)
        self._outgoing.to_servers(Clip(report.number, norm.clip.factor(whole)))
        self.answer(norm.asking, whole)

    def answer(self, asking: Iterable[Contribution], norm: float) -> None:
        """Tell the workers of these contributions the norm of what they are in."""
        for one in asking:
            self._outgoing.to_worker(one.worker, Clipped(one.clock, norm))
