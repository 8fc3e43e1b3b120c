"""Connects a worker to the roster and to the servers of its run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import msgspec

from volary.comm.channels.channel import Credentials
from volary.comm.control.connection import Connection
from volary.comm.transports import ROOM as TRANSPORTS
from volary.server.client.client import Client
from volary.server.client.link import Link
from volary.train.served.roster_client import RosterClient

if TYPE_CHECKING:
    from volary.comm.channels.channel import Channel
    from volary.comm.transports._base import Transport
    from volary.server.protocol.messages import WorkerHello
    from volary.session.spec import Strategy
    from volary.train.member.process import Membership
    from volary.train.served.layout import Layout

CONNECT_TIMEOUT_S = 10.0


@contextmanager
def admitted(member: Membership, hello: WorkerHello, leaving: Callable[[], bool]) -> Iterator[RosterClient]:
    """Be known to the run's roster for a while. leaving: whether this worker was asked to go."""
    key, said = member.directory.key(), msgspec.to_builtins(hello)
    connection = Connection.open(member.host, member.port, key, "roster", said, member.server_life, CONNECT_TIMEOUT_S)
    with closing(RosterClient(connection, leaving)) as work:
        yield work


def linked(strategy: Strategy, member: Membership, layout: Layout, work: RosterClient) -> tuple[Transport, Link]:
    """The worker's link to the servers of its run, over the transport that the strategy names."""
    transport = TRANSPORTS.load(strategy.exchange.transport)()
    client = Client(layout.slices, member.place.rank)
    return transport, Link(client, _connecting(strategy, member, transport), work.unreachable)


def _connecting(
    strategy: Strategy, member: Membership, transport: Transport
) -> Callable[[int, tuple[str, int]], Channel]:
    """What connects the worker to a server, given its number and address."""
    key, hello = member.directory.key(), {"worker": member.place.rank}

    def connect(server: int, address: tuple[str, int]) -> Channel:
        wanted = Credentials(key, member.server_life, server, strategy.security)
        return transport.connect(address, wanted, hello, CONNECT_TIMEOUT_S)

    return connect
