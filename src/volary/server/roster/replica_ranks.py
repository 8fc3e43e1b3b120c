"""Workers that hold one replica together are one member of the roster: this stands between them and it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from volary.comm.control.errors import BadMessage
from volary.comm.control.service import CLOSE, Replies
from volary.run.control.requests import Request
from volary.server.protocol.from_members import Done, Leave, Saved, Unreachable
from volary.server.protocol.hello import WorkerHello
from volary.server.protocol.to_members import End
from volary.server.roster.roster import Roster

_OF_ANY = tuple(kind.__name__.lower() for kind in (Leave, Unreachable))


class ReplicaRanks:
    """The service "roster" of a run (see volary.comm.control.service) whose replicas are `each` workers of neighbouring
    ranks.

    The roster knows a replica by its number, and by the connection of its first rank, which asks for work and reports
    it. What it says to a replica all its ranks hear, in the same order. A contribution is done once all of them have
    said so, as each pushes slices of its own; so are their parts of a checkpoint. A replica is here once all its ranks
    are, and gone with the first of them.
    """

    def __init__(self, roster: Roster, each: int) -> None:
        self._roster, self._each = roster, each
        self._coming: defaultdict[int, dict[int, tuple[int, WorkerHello]]] = defaultdict(dict)  # by replica, and rank
        self._peers: dict[int, list[int]] = {}  # by replica, whose first rank's connection is the first
        self._replica: dict[int, int] = {}  # by connection
        self._done: dict[tuple[int, int], list[Done]] = {}  # by replica and clock
        self._saved: dict[tuple[int, int], list[Saved]] = {}  # by replica and snapshot

    # What the driver tells

    def lost(self, rank: int, reason: str, now: float) -> Replies:
        """A worker is given up, and its replica with it. reason: what happened to it, without its name."""
        return self._to_all(self._roster.lost(rank // self._each, f"has lost rank {rank}, which {reason}", now))

    def left(self, rank: int, now: float) -> Replies:
        """A worker has gone by itself."""
        return self._to_all(self._roster.left(rank // self._each, now))

    def finish(self, now: float) -> Replies:
        """Let the run end after the current work."""
        return self._to_all(self._roster.finish(now))

    def ask(self, request: Request, now: float) -> Replies:
        """Let the run do what it is asked to do."""
        return self._to_all(self._roster.ask(request, now))

    # What members say

    def opened(self, peer: int, hello: dict[str, Any], now: float) -> Replies:
        """A worker or a server has come. A replica is let in, or told why not, once all its ranks are here."""
        if hello.get("is") != "worker":
            return self._to_all(self._roster.opened(peer, hello, now))
        who = _converted(hello, WorkerHello)
        replica, ranks = who.rank // self._each, self._coming[who.rank // self._each]
        if replica in self._peers or who.rank in ranks:
            return [(peer, End(f"rank {who.rank} was here before")), (peer, CLOSE)]
        ranks[who.rank] = peer, who
        if len(ranks) < self._each:
            return ()
        first, *_ = together = [ranks[rank] for rank in sorted(ranks)]
        self._peers[replica] = [one for one, _ in together]
        self._replica |= dict.fromkeys(self._peers[replica], replica)
        residuals = any(one.residuals for _, one in together)
        as_one = msgspec.structs.replace(first[1], rank=replica, residuals=residuals)
        return self._to_all(self._roster.opened(first[0], msgspec.to_builtins(as_one), now))

    def received(self, peer: int, message: Any, now: float) -> Replies:
        """A message has come. Raises BadMessage if it makes no sense, or is not its rank's to say."""
        if (replica := self._replica.get(peer)) is None:
            return self._to_all(self._roster.received(peer, message, now))
        if replica not in self._peers:
            return ()  # it was given up
        first, kind = self._peers[replica][0], message.get("kind") if isinstance(message, Mapping) else None
        if kind == "done":
            return self._of_all(self._done, replica, _converted(message, Done), now)
        if kind == "saved":
            return self._of_all(self._saved, replica, _converted(message, Saved), now)
        if peer != first and kind not in _OF_ANY:
            raise BadMessage(f"a rank of replica {replica + 1} says {kind}, which its first one does for all")
        return self._to_all(self._roster.received(first, message, now))

    def closed(self, peer: int, now: float) -> Replies:
        """A connection has ended: so has its replica, unless the run is over, whose last ranks may still be busy."""
        if (replica := self._replica.pop(peer, None)) is None:
            self._forget(peer)
            return self._to_all(self._roster.closed(peer, now))
        peers = self._peers.get(replica, [])
        if self._roster.outcome is not None and any(one in self._replica for one in peers):
            return ()
        self._peers.pop(replica, None)
        last = [(one, End("a worker that holds the same replica has gone")) for one in peers if one in self._replica]
        ends = [part for one, end in last for part in ((one, end), (one, CLOSE))]
        return [*ends, *self._to_all(self._roster.closed(peers[0], now))] if peers else ()

    def tick(self, now: float) -> Replies:
        return self._to_all(self._roster.tick(now))

    def _of_all(
        self, known: dict[tuple[int, int], list[Any]], replica: int, report: Done | Saved, now: float
    ) -> Replies:
        """Pass on what all ranks of a replica have said."""
        key = replica, report.clock if isinstance(report, Done) else report.snapshot
        reports = known.setdefault(key, [])
        reports.append(report)
        if len(reports) < self._each:
            return ()
        del known[key]
        whole = _done(reports) if isinstance(report, Done) else _saved(reports)
        return self._to_all(self._roster.received(self._peers[replica][0], msgspec.to_builtins(whole), now))

    def _forget(self, peer: int) -> None:
        """One has gone before its replica was here."""
        for ranks in self._coming.values():
            for rank in [rank for rank, (one, _) in ranks.items() if one == peer]:
                del ranks[rank]

    def _to_all(self, replies: Replies) -> Iterator[tuple[int, Any]]:
        for peer, message in replies:
            replica = self._replica.get(peer)
            for one in [peer] if replica is None else self._peers.get(replica, [peer]):
                yield one, message
            if message is CLOSE and replica is not None:
                self._peers.pop(replica, None)  # it was let go


def _done(reports: list[Done]) -> Done:
    return msgspec.structs.replace(reports[0], waited_ms=max(one.waited_ms for one in reports))


def _saved(reports: list[Saved]) -> Saved:
    files = {name: checksum for one in reports for name, checksum in one.files.items()}
    return Saved(reports[0].snapshot, files, "; ".join(one.problem for one in reports if one.problem))


def _converted(message: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(message, kind)
    except msgspec.ValidationError as error:
        raise BadMessage(str(error)) from None
