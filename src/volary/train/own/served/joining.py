"""A loop of a user's own joins its run's roster and servers, with its first batch."""

from __future__ import annotations

from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from volary.comm.control.store import KeyedStore
from volary.comm.groups.group import LAST_RESORT_S
from volary.errors import Stopped
from volary.server.protocol.hello import WorkerHello
from volary.train.agreement.agreed_plan import describe
from volary.train.own.served.model import FollowedRates
from volary.train.own.served.steps import ServedSteps
from volary.train.served.by_roster import LearningSettings
from volary.train.served.layout import cut_network
from volary.train.served.push_settings import PushSettings
from volary.train.served.server.network_file import HERE, load_values, write_network
from volary.train.worker.connect import admitted
from volary.train.worker.over_servers import ServedWorker, network_facts

if TYPE_CHECKING:
    from collections.abc import Callable

    from volary.train.member.process import Membership
    from volary.train.own.served.loop_start import LoopStart
    from volary.train.own.served.model import ServedModel
    from volary.train.own.served.portions import LoopPortions
    from volary.train.own.served.turns import Distributing
    from volary.train.served.saver import RosterSaver


def join(
    start: LoopStart,
    model: ServedModel,
    how: Distributing,
    portions: LoopPortions,
    saver: RosterSaver,
    *,
    saves: bool,
    decay: float | None,
) -> ServedSteps:
    """Be let in. saver: of this worker's files in checkpoints. saves: the loop is made to be saved.

    decay: of the average that servers keep of the weights, if they do. Raises Stopped if the run is over, RanksDiffer
    unless all workers are alike.
    """
    strategy, member, settings = start.script.strategy, start.member, replace(model.settings, decay=decay)
    start.recorder.starting("waiting for the servers")
    start.recorder.enter("exchange")
    # of gradients that wait for their optimiser's step no factors are kept
    samples = 0 if how.waits(strategy.consistency) else portions.epochs.batch_size * how.passes
    layout = cut_network(strategy, model.module, samples, elementwise=settings.elementwise)
    network = partial(write_network, member.directory.path, model.module, settings, samples)
    _share_network(member, model, portions, partial(network, describe(layout.plans, layout.chunk_mb)))
    groups = enumerate(zip(settings.kinds, settings.groups, strict=True))
    of_groups = {f"optimizer, group {number}": f"{kind} {group}" for number, (kind, group) in groups}
    average = {"average": "none" if decay is None else f"decay {decay}"}
    facts, epochs = start.facts | network_facts(model.module, layout) | of_groups | average, portions.epochs
    hello = WorkerHello(member.place.rank, facts, epochs.samples, 0, "", True, batch_size=epochs.batch_size)
    with ExitStack() as stack:
        work, welcome = stack.enter_context(admitted(member, hello, lambda: start.pulse.asked_to_end))
        if welcome is None:
            raise Stopped("the run is over")
        rates = FollowedRates(model.optimizers)
        worker = ServedWorker(
            member=member,
            strategy=strategy,
            recorder=start.recorder,
            module=model.module,
            layout=layout,
            pushes=PushSettings(
                passes=strategy.consistency.steps() * how.passes,
                weight=lambda: steps.weight,
                wait=how.waits(strategy.consistency),
            ),
            learning=LearningSettings(
                consistency=strategy.consistency,
                epochs=epochs,
                seed=None,
                lr=lambda _: rates()[0],
                rates=rates,
            ),
            reader=portions,
            saver=saver,
            saves=saves and strategy.consistency.elastic,
            look=start.script.histograms,
        )
        replica, coordinator = worker.begin(stack, work, welcome.restore)
        steps = ServedSteps(stack.pop_all(), work, start.recorder, replica, coordinator, strategy.consistency, how)
        return steps


def _share_network(
    member: Membership, model: ServedModel, portions: LoopPortions, write: Callable[[bytes], None]
) -> None:
    """Servers and all other workers begin with the network of rank 0, and these with its order of samples.

    write: it down, with that order.
    """
    key, folder, meets = member.directory.key(), member.directory.path, member.meeting
    with closing(KeyedStore.at(meets.host, meets.port, key, meets.attempt_id, LAST_RESORT_S)) as board:
        if member.place.leads:
            write(portions.begin())
            board.set(HERE, b"")
        else:
            board.wait([HERE])
            portions.begin(load_values(model.module, folder).order)
