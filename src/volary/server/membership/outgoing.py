"""Messages of the roster, in order, to members by the names that it knows them by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from volary.comm.control.service import CLOSE
from volary.server.membership.members import Members
from volary.server.membership.replicas import Replicas
from volary.server.protocol.to_members import ToMember

Record = Callable[[str, int | None, dict[str, Any]], None]


class Outgoing:
    """Collects messages until they are `taken`. record: called with (kind, rank, data) of what the run's journal
    is to hold.
    """

    def __init__(self, members: Members, replicas: Replicas, record: Record) -> None:
        self.record = record
        self._members, self._replicas = members, replicas
        self._waiting: list[tuple[int, Any]] = []

    def to(self, peer: int, message: ToMember) -> None:
        """Queue a message for one connection."""
        self._waiting.append((peer, message))

    @property
    def workers(self) -> list[int]:
        """The ranks of the workers that are connected."""
        return sorted(member.rank for member in self._members)

    def to_worker(self, rank: int, message: ToMember) -> None:
        """Send to a worker, if it is here."""
        if (member := self._members.of(rank)) is not None:
            self.to(member.peer, message)

    def to_server(self, number: int, message: ToMember) -> None:
        """Send to a server, if it is here."""
        if (server := self._replicas.of(number)) is not None:
            self.to(server.peer, message)

    def to_workers(self, message: ToMember) -> None:
        """Queue a message for every worker that is connected."""
        for member in self._members:
            self.to(member.peer, message)

    def to_servers(self, message: ToMember) -> None:
        """Queue a message for every server that is connected."""
        for server in self._replicas:
            self.to(server.peer, message)

    def dismiss(self, peer: int, message: ToMember) -> None:
        """A last word, and the connection ends."""
        self._waiting += [(peer, message), (peer, CLOSE)]

    def taken(self) -> list[tuple[int, Any]]:
        """Take the messages that wait to be sent."""
        taken, self._waiting = self._waiting, []
        return taken
