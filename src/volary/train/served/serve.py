"""What a server process does: build the session's network, keep its slices, update them as the roster says."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from volary.codec import ROOM as CODECS
from volary.comm.control.wire import Connection
from volary.comm.transports import ROOM as TRANSPORTS
from volary.comm.transports._base import Credentials
from volary.consistency._base import Push
from volary.data.stream import Stream
from volary.errors import PeerLost
from volary.run.checkpoints import Checkpoints
from volary.server.protocol.messages import Kept, ServerHello, ServerWelcome
from volary.server.shards.forms import Forms, SliceShape, try_out
from volary.server.shards.host import Host
from volary.server.shards.orders import Reports, RosterListener, RosterOrders, spoken
from volary.server.shards.shard import Shard
from volary.server.shards.vault import Rule, SliceStore
from volary.session.spec import Session
from volary.train.assemble import Model, build_model
from volary.train.served.layout import Layout, lay_out
from volary.train.served.rule import BufferRule, Clock, MeanRule, OptimizerRule, RateChanges
from volary.train.served.shards import ShardWriter
from volary.train.state.optimizer_state import OptimizerState
from volary.train.state.seeds import seed_all
from volary.train.state.weights import SavedWeights, weights_of

if TYPE_CHECKING:
    from volary.codec._base import FrameCodec
    from volary.comm.transports._base import Channel, Listener
    from volary.run.directory import RunDirectory
    from volary.server.protocol.slices import Slice
    from volary.server.shards.memory import Take

CONNECT_TIMEOUT_S = 15.0
READY_TIMEOUT_S = 600.0  # workers that connect early wait for a checkpoint to be read, however large


def serve(directory: RunDirectory, number: int, meet: tuple[str, int], life: str, address: str) -> None:
    """Be server `number` of the run whose server, of this `life`, is at `meet`, until the run ends.

    address: of this machine, to listen for workers on.

    Raises PeerLost if the run's server goes away, SettingError, and what the user's code raises.
    """
    torch.set_num_threads(1)  # as many threads as there are connections work at once
    session = Session.read(directory.session)
    seed_all(session.train.seed)  # as the workers do: all begin with the same values
    model = build_model(session, torch.device("cpu"))
    servers = session.strategy.exchange.count(session.strategy.workers)
    layout = lay_out(session, model.module, servers)
    shards = {number, (number - 1) % servers} if session.strategy.exchange.replicas > 1 else {number}
    slices = [one for one in layout.slices if one.shard in shards]
    pulls = _pulls(session)
    for codec in dict.fromkeys((*(way.frames for way in layout.ways), pulls)):
        if codec is not None:
            try_out(codec)
    own = Credentials(directory.key(), life, number, session.strategy.security)
    with _Door(session, own, address) as door, _joined(own, meet, door) as connection:
        reports = Reports(connection)
        try:
            hearing = RosterListener(connection, session.strategy.give_up_after_s)
            welcome = hearing.welcome(READY_TIMEOUT_S)
            if not isinstance(welcome, ServerWelcome):
                raise PeerLost(f"the run's server has no place for server {number}: {welcome}")
            checkpoints = Checkpoints(directory.checkpoints)
            rates = RateChanges()
            vault = filled(session, model, layout, slices, checkpoints, welcome, door.transport.memory, rates)
            shard = Shard({one: vault.forms.shapes[one].size_bytes for one in vault.numbers}, welcome.applied)
            host = Host(shard, vault, pulls=pulls, kept=lambda cut: reports.say(Kept(cut)))
            writer = ShardWriter(number, layout, model.module, checkpoints)
            door.open(host)
            try:
                RosterOrders(hearing, reports, host, lambda *what: writer.write(vault, *what), rates.add).follow()
            finally:
                host.close()
        finally:
            reports.close()


class _Door:
    """Where workers connect; those who come before the host is there wait for it."""

    def __init__(self, session: Session, own: Credentials, address: str) -> None:
        self.transport = TRANSPORTS.load(session.strategy.exchange.transport)()
        self._host: Host | None = None
        self._opened = threading.Event()
        self._listener: Listener = self.transport.listen(address, own, self._accepted)

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return self._listener.address

    def open(self, host: Host) -> None:
        """Let them in."""
        self._host = host
        self._opened.set()

    def __enter__(self) -> _Door:
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
def _joined(own: Credentials, meet: tuple[str, int], door: _Door) -> Iterator[Connection]:
    """Be known to the roster for a while."""
    hello = spoken(ServerHello(own.server, *door.address, os.getpid()))
    connection = Connection.open(*meet, own.key, "roster", hello, own.life, CONNECT_TIMEOUT_S)
    with connection:
        yield connection


def filled(
    session: Session,
    model: Model,
    layout: Layout,
    slices: Sequence[Slice],
    checkpoints: Checkpoints,
    welcome: ServerWelcome,
    memory: Take | None = None,
    rates: RateChanges | None = None,
) -> SliceStore:
    """The slices as the network begins, or as a checkpoint has them. rates: how the learning rate changes meanwhile."""
    assert not isinstance(model.samples, Stream)  # open_data refuses it
    own = [one for one in slices if not layout.is_of_buffers(one)]
    buffers = [one for one in slices if layout.is_of_buffers(one)]
    rule: Rule = MeanRule(own)
    if session.strategy.consistency.pushes is not Push.DIFFERENCE:
        rule = OptimizerRule(session, layout, own, Clock.of(session, model.samples), rates)
    rules = dict[int, Rule](dict.fromkeys((one.number for one in own), rule))
    rules |= dict.fromkeys((one.number for one in buffers), BufferRule(buffers))
    if welcome.restore is not None:
        path, manifest = checkpoints.path(welcome.restore), checkpoints.manifest(welcome.restore)
        weights, kept = SavedWeights(path, manifest), {name for name, _ in layout.tensors}
        for name, tensor in weights_of(model.module).items():
            if name not in kept:
                tensor.copy_(weights.whole(name))
        _restore(weights, OptimizerState.read(path, manifest), layout, slices, rules)
    values = {one.number: torch.cat([layout.values(part) for part in one.parts]) for one in slices}
    forms = Forms({one.number: _shape(layout, one) for one in slices})
    return SliceStore(forms, values, rules.__getitem__, welcome.applied, memory)


def _restore(
    weights: SavedWeights, state: OptimizerState, layout: Layout, slices: Sequence[Slice], rules: Mapping[int, Rule]
) -> None:
    for one in slices:
        for part in one.parts:
            name, tensor = layout.tensors[part.parameter]
            layout.values(part).copy_(weights.values(name, tensor, part.start, part.end))
        rules[one.number].restore(one.number, state)


def _shape(layout: Layout, one: Slice) -> SliceShape:
    lengths, widths = [part.size for part in one.parts], [layout.columns(part) for part in one.parts]
    dtype = layout.values(one.parts[0]).dtype
    codec = layout.ways[one.chunk].frames
    return SliceShape(tuple(lengths), tuple(widths), dtype, added=dtype.is_floating_point, codec=codec)


def _pulls(session: Session) -> FrameCodec | None:
    name = session.strategy.exchange.pulls
    codec: FrameCodec | None = None if name == "none" else CODECS.load(name)()
    return codec
