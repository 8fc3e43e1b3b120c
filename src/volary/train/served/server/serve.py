"""A server process: builds the session's network, keeps its slices, updates them as the roster says."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from volary.codec import ROOM as CODECS
from volary.comm.channels.channel import Credentials
from volary.comm.control.connection import Connection
from volary.comm.control.store import KeyedStore
from volary.comm.transports import ROOM as TRANSPORTS
from volary.consistency._base import Push
from volary.data.datasets.stream import Stream
from volary.errors import PeerLost, SettingError
from volary.run.checkpoints import Checkpoints
from volary.run.machine.open_files import allow_connections
from volary.server.protocol.messages import End, ServerHello, ServerWelcome
from volary.server.shards.forms import Forms, SliceShape, try_out
from volary.server.shards.host import Host
from volary.server.shards.roster_listener import Reports, RosterListener, RosterOrders, encoded
from volary.server.shards.shard import Shard
from volary.server.shards.slice_store import Norm, SliceStore
from volary.server.update_rule import UpdateRule
from volary.session.script import Script, is_own_loop
from volary.session.spec import Session
from volary.train.agreement.agreed_plan import describe
from volary.train.member.remote_directory import bring, writer
from volary.train.model import Model, build_model
from volary.train.served.layout import Layout, cut_network, lay_out
from volary.train.served.server.network_file import HERE, read_network
from volary.train.served.server.rule import BufferRule, Clock, MeanRule, RateChanges, SessionUpdating
from volary.train.served.server.shards import ShardWriter
from volary.train.state.optimizer_state import OptimizerState
from volary.train.state.rank_state import is_of_rank
from volary.train.state.seeds import seed_all
from volary.train.state.weights import SavedWeights, weights_of
from volary.train.update.optimizer_rule import OptimizerRule
from volary.train.update.uncompiled import spare_the_compiler

if TYPE_CHECKING:
    from torch import nn

    from volary.codec._base import FrameCodec
    from volary.comm.channels.channel import Channel, Listener
    from volary.run.directory import RunDirectory
    from volary.server.protocol.slices import Slice
    from volary.server.shards.buffer_pool import Take
    from volary.session.spec import Strategy
    from volary.train.member.remote_directory import RemoteDirectory
    from volary.train.update.optimizer_rule import Updating

CONNECT_TIMEOUT_S = 15.0
READY_TIMEOUT_S = 600.0  # workers that connect early wait for a checkpoint to be read, however large


def serve(
    directory: RunDirectory,
    number: int,
    meet: tuple[str, int],
    life: str,
    address: str,
    remote: RemoteDirectory | None = None,
) -> None:
    """Be server `number` of the run whose server, of this `life`, is at `meet`, until the run ends.

    address: of this machine, to listen for workers on. remote: the run's own directory, if this machine does not see
    it.

    Raises PeerLost if the run's server goes away, SettingError, and what the user's code raises.
    """
    torch.set_num_threads(1)  # as many threads as there are connections work at once
    own_loop = is_own_loop(directory.session)
    session = None if own_loop else Session.read(directory.session)
    network = None if session is None else _of_session(session)
    strategy = Script.read(directory.session).strategy if session is None else session.strategy
    allow_connections(4 * (strategy.workers + strategy.servers))  # others may join
    own = Credentials(directory.key(), life, number, strategy.security)
    with _Listener(strategy, own, address) as listener, _joined(own, meet, listener) as connection:
        reports = Reports(connection)
        try:
            hearing = RosterListener(connection, strategy.give_up_after_s)
            welcome = hearing.welcome(READY_TIMEOUT_S)
            if not isinstance(welcome, ServerWelcome):
                raise PeerLost(f"the run's server has no place for server {number}: {welcome}")
            network = network or _awaited(strategy, directory, own, meet, hearing)
            if network is None:
                return  # the run has ended before
            layout = network.layout
            for codec in dict.fromkeys(
                (*(representation.frames for representation in layout.representations), network.pulls)
            ):
                if codec is not None:
                    try_out(codec)
            servers = strategy.servers
            shards = {number, (number - 1) % servers} if strategy.exchange.replicas > 1 else {number}
            slices = [one for one in layout.slices if one.shard in shards]
            checkpoints = Checkpoints(directory.checkpoints)
            if welcome.restore is not None:
                bring(remote, checkpoints, welcome.restore, lambda name: not is_of_rank(name))
            slice_store = stored(network, slices, checkpoints, welcome, listener.transport.memory)
            shard = Shard(
                {one: slice_store.forms.shapes[one].size_bytes for one in slice_store.numbers},
                welcome.applied,
                shards={one.number: one.shard for one in slices},
            )
            host = Host(shard, slice_store, pulls=network.pulls, report=reports.send)
            shard_writer = ShardWriter(number, layout, network.module, writer(remote, checkpoints))
            listener.open(host)
            try:
                RosterOrders(
                    hearing, reports, host, lambda *what: shard_writer.write(slice_store, *what), network.rates.add
                ).follow()
            finally:
                host.close()
        finally:
            reports.close()


@dataclass(frozen=True)
class ServedNetwork:
    """What servers keep. updating: None where workers update, and servers add. pulls: codec of differences in pulls.

    rates: how a session's learning rate changes while the run trains.
    """

    module: nn.Module
    layout: Layout
    updating: Updating | None
    pulls: FrameCodec | None
    rates: RateChanges


def _of_session(session: Session) -> ServedNetwork:
    seed_all(session.train.seed)  # as the workers do: all begin with the same values
    model = build_model(session, torch.device("cpu"))
    strategy = session.strategy
    return network_of(session, model, lay_out(session, model.module, strategy.servers))


def network_of(session: Session, model: Model, layout: Layout, rates: RateChanges | None = None) -> ServedNetwork:
    """What servers keep of a session's network, which is cut so."""
    rates = rates or RateChanges()
    assert not isinstance(model.samples, Stream)  # open_data refuses it
    updating = None
    if session.strategy.consistency.pushes is not Push.DIFFERENCE:
        updating = SessionUpdating(session, Clock.of(session, model.samples), rates)
    return ServedNetwork(model.module, layout, updating, _pulls(session.strategy), rates)


def _awaited(
    strategy: Strategy, directory: RunDirectory, own: Credentials, meet: tuple[str, int], hearing: RosterListener
) -> ServedNetwork | None:
    """The network of a loop of one's own, once its first worker has written it down; None: the run has ended before."""
    with contextlib.closing(KeyedStore.at(*meet, own.key, own.life)) as board:
        while not board.check([HERE]):
            if isinstance(message := hearing.next(), End):  # in between the roster answers beats
                return None
            if message is not None:
                hearing.put_back(message)
                break  # the run has begun
    spare_the_compiler()
    module, said = read_network(directory.path)
    servers = strategy.servers
    elementwise = said.optimizer.elementwise
    layout = cut_network(strategy, module, said.batch_size, servers, elementwise=elementwise)
    if describe(layout.plans, layout.chunk_mb) != said.plan:
        raise SettingError("this network's gradients are cut otherwise on servers than on workers: please report it")
    local = strategy.consistency.pushes is Push.DIFFERENCE
    return ServedNetwork(module, layout, None if local else said.optimizer, _pulls(strategy), RateChanges())


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
    connection = Connection.open(*meet, own.key, "roster", hello, own.life, CONNECT_TIMEOUT_S)
    with connection:
        yield connection


def stored(
    network: ServedNetwork,
    slices: Sequence[Slice],
    checkpoints: Checkpoints,
    welcome: ServerWelcome,
    memory: Take | None = None,
) -> SliceStore:
    """The slices as the network begins, or as a checkpoint has them."""
    layout = network.layout
    own = [one for one in slices if not layout.is_of_buffers(one)]
    buffers = [one for one in slices if layout.is_of_buffers(one)]
    rule: UpdateRule = MeanRule()
    norm: Norm | None = None
    if (updating := network.updating) is not None:
        whole = not updating.elementwise
        parts = {one.number: {part: layout.trained(part, whole=whole) for part in one.parts} for one in own}
        rule = optimizers = OptimizerRule(parts, updating, changes_sums=True)
        norm = optimizers.norm
    rules = dict[int, UpdateRule](dict.fromkeys((one.number for one in own), rule))
    rules |= dict.fromkeys((one.number for one in buffers), BufferRule())
    if welcome.restore is not None:
        path, manifest = checkpoints.path(welcome.restore), checkpoints.manifest(welcome.restore)
        weights = SavedWeights(path, manifest)
        for name, tensor in weights_of(network.module).items():
            if name not in layout.tensors:
                tensor.copy_(weights.whole(name))
        _restore(weights, OptimizerState.read(path, manifest), layout, slices, rules)
    values = {one.number: torch.cat([layout.values(part) for part in one.parts]) for one in slices}
    forms = Forms({one.number: _shape(layout, one) for one in slices})
    return SliceStore(forms, values, rules.__getitem__, welcome.applied, memory, norm)


def _restore(
    weights: SavedWeights,
    state: OptimizerState,
    layout: Layout,
    slices: Sequence[Slice],
    rules: Mapping[int, UpdateRule],
) -> None:
    for one in slices:
        for part in one.parts:
            layout.values(part).copy_(weights.values(part, layout.tensors[part.name]))
        rules[one.number].restore(one.number, state)


def _shape(layout: Layout, one: Slice) -> SliceShape:
    lengths, widths = [part.size for part in one.parts], [layout.columns(part) for part in one.parts]
    dtype = layout.values(one.parts[0]).dtype
    codec = layout.representations[one.chunk].frames
    return SliceShape(tuple(lengths), tuple(widths), dtype, added=dtype.is_floating_point, codec=codec)


def _pulls(strategy: Strategy) -> FrameCodec | None:
    name = strategy.exchange.pulls
    codec: FrameCodec | None = None if name == "none" else CODECS.load(name)()
    return codec
