"""A server process: builds the session's network, keeps its slices, updates them as the roster says."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from volary.comm.channels.channel import Credentials
from volary.comm.control.connection import Connection
from volary.comm.transports import ROOM as TRANSPORTS
from volary.errors import PeerLost
from volary.run.checkpoints import Checkpoints
from volary.run.machine.open_files import allow_connections
from volary.server.protocol.hello import ServerHello
from volary.server.protocol.to_members import ServerWelcome
from volary.server.shards.forms import try_out
from volary.server.shards.host import Host
from volary.server.shards.roster_listener import Reports, RosterListener, RosterOrders, encoded
from volary.server.shards.shard import Shard
from volary.session.script import Script, is_own_loop
from volary.session.spec import Session
from volary.train.member.remote_directory import bring, writer
from volary.train.served.server.served_network import awaited_network, first_model, network_of_session
from volary.train.served.server.shards import ShardWriter
from volary.train.served.server.stored import stored
from volary.train.served.thawing import thaw
from volary.train.state.rank_state import is_of_rank

if TYPE_CHECKING:
    from volary.comm.channels.channel import Channel, Listener
    from volary.run.directory import RunDirectory
    from volary.session.spec import Strategy
    from volary.train.member.remote_directory import RemoteDirectory

CONNECT_TIMEOUT_S = 15.0
READY_TIMEOUT_S = 600.0  # workers that connect early wait for a checkpoint to be read, however large


def serve(
    directory: RunDirectory,
    number: int,
    meet: tuple[str, int],
    attempt_id: str,
    address: str,
    remote: RemoteDirectory | None = None,
) -> None:
    """Be server `number` of the run whose server, of this `attempt_id`, is at `meet`, until the run ends.

    address: of this machine, to listen for workers on. remote: the run's own directory, if this machine does not see
    it.

    Raises PeerLost if the run's server goes away, SettingError, and what the user's code raises.
    """
    torch.set_num_threads(1)  # as many threads as there are connections work at once
    own_loop = is_own_loop(directory.session)
    session = None if own_loop else Session.read(directory.session)
    model = None if session is None else first_model(session)
    strategy = Script.read(directory.session).strategy if session is None else session.strategy
    allow_connections(4 * strategy.processes)  # others may join
    own = Credentials(directory.key(), attempt_id, number, strategy.security)
    with _Listener(strategy, own, address) as listener, _joined(own, meet, listener) as connection:
        reports = Reports(connection)
        try:
            hearing = RosterListener(connection, strategy.give_up_after_s)
            welcome = hearing.welcome(READY_TIMEOUT_S)
            if not isinstance(welcome, ServerWelcome):
                raise PeerLost(f"the run's server has no place for server {number}: {welcome}")
            checkpoints = Checkpoints(directory.checkpoints)
            if model:
                thaw(model, welcome.restore, remote, checkpoints)
            network = network_of_session(model) if model else awaited_network(strategy, directory, own, meet, hearing)
            if network is None:
                return  # the run has ended before
            for codec in network.codecs():
                try_out(codec)
            slices = network.layout.kept_by(number, strategy.exchange.replicas)
            if welcome.restore is not None:
                bring(remote, checkpoints, welcome.restore, lambda name: not is_of_rank(name))
            slice_store = stored(network, slices, checkpoints, welcome, listener.transport.memory)
            shard = Shard(
                {one: slice_store.forms.shapes[one].size_bytes for one in slice_store.numbers},
                welcome.applied,
                shards={one.number: one.shard for one in slices},
                each=strategy.ranks_each,
            )
            host = Host(shard, slice_store, pulls=network.pulls, report=reports.send)
            shard_writer = ShardWriter(number, network, writer(remote, checkpoints))
            listener.open(host)
            try:
                RosterOrders(
                    hearing, reports, host, lambda *what: shard_writer.write(slice_store, *what), network.rates.add
                ).follow()
            finally:
                host.close()
        finally:
            reports.close()


class _Listener:
    """Where workers connect; those who come before the host is there wait for it."""

    def __init__(self, strategy: Strategy, own: Credentials, address: str) -> None:
        self.transport = TRANSPORTS.load(strategy.exchange.transport)()
        self._host: Host | None = None
        self._opened = threading.Event()
        self._listener: Listener = self.transport.listen(address, own, self._accepted)

    @property
    def address(self) -> tuple[str, int]:
        return self._listener.address

    def open(self, host: Host) -> None:
        self._host = host
        self._opened.set()

    def __enter__(self) -> _Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self._opened.set()

    def _accepted(self, channel: Channel) -> None:
        if self._opened.wait(READY_TIMEOUT_S) and self._host is not None:
            self._host.accepted(channel)
        else:
            channel.close()


@contextlib.contextmanager
def _joined(own: Credentials, meet: tuple[str, int], listener: _Listener) -> Iterator[Connection]:
    """Be known to the roster for a while."""
    hello = encoded(ServerHello(own.server, *listener.address, os.getpid()))
    connection = Connection.open(*meet, own.key, "roster", hello, own.attempt_id, CONNECT_TIMEOUT_S)
    with connection:
        yield connection
