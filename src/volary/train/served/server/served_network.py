"""The part of a network that servers keep: a session's, or that of a user's own loop, which its first worker writes."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from volary.codec import ROOM as CODECS
from volary.comm.control.store import KeyedStore
from volary.consistency._base import Push
from volary.data.datasets.stream import Stream
from volary.errors import SettingError
from volary.server.protocol.to_members import End
from volary.train.agreement.agreed_plan import describe
from volary.train.model import Model, build_model, of_vectors
from volary.train.served.layout import Layout, cut_network, lay_out
from volary.train.served.replica_parts import held_by_replica
from volary.train.served.server.network_file import HERE, read_network
from volary.train.served.server.rule import Clock, RateChanges, SessionRates, SessionUpdating, averaging_of
from volary.train.state.optimizer_state import OPTIMIZER, OUTER
from volary.train.state.seeds import seed_all
from volary.train.state.weights import weights_of
from volary.train.strategies.averaging.outer_rule import outer_updating
from volary.train.update.uncompiled import spare_the_compiler

if TYPE_CHECKING:
    from torch import nn

    from volary.codec._base import FrameCodec
    from volary.comm.channels.channel import Credentials
    from volary.run.directory import RunDirectory
    from volary.server.shards.roster_listener import RosterListener
    from volary.session.spec import Session, Strategy
    from volary.train.strategies.averaging.outer_rule import OuterUpdating
    from volary.train.update.averaging import Averaging
    from volary.train.update.optimizer_rule import Updating


@dataclass(frozen=True)
class ServedNetwork:
    """A network on servers. updating: None if workers update, and servers add what these have changed, or
    step by it as `outer` says. vectors: the rates of a session whose update is made of vectors as the roster says;
    there is no other rule then. averaging: of the weights, if an average is kept. pulls: codec of differences in pulls.
    centre: workers pull what servers keep.

    rates: how a session's learning rate changes while the run trains.
    """

    module: nn.Module
    layout: Layout
    updating: Updating | None
    outer: OuterUpdating | None
    averaging: Averaging | None
    pulls: FrameCodec | None
    rates: RateChanges
    centre: bool = False
    vectors: SessionRates | None = None

    @property
    def remembered(self) -> str:
        """The name of the file of what the rule of all parameters remembers, in a checkpoint."""
        return OUTER if self.updating is None and self.vectors is None else OPTIMIZER

    def codecs(self) -> list[FrameCodec]:
        """The codecs of all that travels, each once."""
        found = dict.fromkeys((*(one.frames for one in self.layout.representations), self.pulls))
        return [codec for codec in found if codec is not None]


def first_model(session: Session) -> Model:
    """Build a session's network as the run begins. Raises what the user's code raises."""
    seed_all(session.train.seed)  # as the workers do: all begin with the same values
    return build_model(session, torch.device("cpu"))


def network_of_session(model: Model) -> ServedNetwork:
    """Build what servers keep of a session's network, as it is trained from now on. Raises SettingError."""
    layout = lay_out(model, held_by_replica(model))
    whole = weights_of(model.module)
    for name, block in layout.blocks.items():
        layout.tensors[name].detach().copy_(block.taken_from(whole[block.name]))
    return network_of(model, layout)


def network_of(model: Model, layout: Layout, rates: RateChanges | None = None) -> ServedNetwork:
    """Build what servers keep of a session's network, which `layout` cuts."""
    session, rates = model.session, rates or RateChanges()
    assert not isinstance(model.samples, Stream)  # open_data refuses it
    clock, updating, vectors = Clock.of(session, model.samples), None, None
    averaging = averaging_of(session, clock)
    if of_vectors(session.optimizer):
        vectors = SessionRates(session.optimizer.lr, clock, rates)
    elif session.strategy.consistency.pushes is not Push.DIFFERENCE:
        updating = SessionUpdating(session, model.factors, clock, rates, layout.called)
    strategy = session.strategy
    outer = outer_updating(strategy.consistency, averaging)
    pulls, centre = _pulls(strategy), _has_centre(strategy)
    return ServedNetwork(model.module, layout, updating, outer, averaging, pulls, rates, centre, vectors)


def awaited_network(
    strategy: Strategy, directory: RunDirectory, own: Credentials, meet: tuple[str, int], hearing: RosterListener
) -> ServedNetwork | None:
    """The network of a loop of one's own, once its first worker has written it down; None: the run has ended before.

    Raises SettingError if it is cut otherwise here than on workers.
    """
    with closing(KeyedStore.at(*meet, own.key, own.attempt_id)) as board:
        while not board.check([HERE]):
            if isinstance(message := hearing.next(), End):  # in between the roster answers beats
                return None
            if message is not None:
                hearing.put_back(message)
                break  # the run has begun
    spare_the_compiler()
    module, header = read_network(directory.path)
    elementwise = header.optimizer.elementwise
    layout = cut_network(strategy, module, header.samples, elementwise=elementwise)
    if describe(layout.plans, layout.chunk_mb) != header.plan:
        raise SettingError("this network's gradients are cut otherwise on servers than on workers: please report it")
    local, averaging = strategy.consistency.pushes is Push.DIFFERENCE, header.optimizer.averaging
    updating, outer = None if local else header.optimizer, outer_updating(strategy.consistency, averaging)
    pulls, centre = _pulls(strategy), _has_centre(strategy)
    return ServedNetwork(module, layout, updating, outer, averaging, pulls, RateChanges(), centre)


def _has_centre(strategy: Strategy) -> bool:
    return strategy.consistency.pull(strategy.workers) is not None


def _pulls(strategy: Strategy) -> FrameCodec | None:
    name = strategy.exchange.pulls
    codec: FrameCodec | None = None if name == "none" else CODECS.load(name)()
    return codec
