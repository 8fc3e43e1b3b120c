"""The parts of a session's worker, whoever says what is next: device, network, update, what the loop takes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from volary.errors import SettingError
from volary.naming import trained_parameters
from volary.network.execution.compiled import compiled
from volary.partition._base import whole_batch
from volary.train.coordinator import Coordinator
from volary.train.device import device_of
from volary.train.hogwild.threads import LockFreeThreads
from volary.train.loop import Training
from volary.train.member.compare import code_facts, setting_facts, user_objects
from volary.train.model import TrainedNetwork, build_model, update_rule
from volary.train.predicting.text_writer import TextWriter
from volary.train.state.seeds import seed_all
from volary.train.trial import try_first
from volary.train.uncounted import UncountedLoss
from volary.train.update.averaging import Averaging
from volary.train.update.precision import Precision, check_precision
from volary.train.update.session_schedule import schedule_of
from volary.train.update.update import Update

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch import Tensor

    from volary.data.feed import Feed
    from volary.partition._base import Part
    from volary.placement import Place
    from volary.session.spec import Session
    from volary.train.member.compare import Facts
    from volary.train.member.process import Membership
    from volary.train.model import Model
    from volary.train.recording.recorder import Recorder
    from volary.train.replica import Replica
    from volary.train.trial import TrialResult

Who = TypeVar("Who", bound=Coordinator)


def device_for(session: Session, place: Place) -> torch.device:
    """The device of the worker at a place. Raises SettingError if there is none, or the precision or threads are not
    for it.
    """
    device = device_of(session.train.device, place)
    check_precision(session.train.precision, device)
    if device.type != "cpu" and (threads := session.strategy.consistency.threads) > 1:
        raise SettingError(
            f"strategy.consistency.threads is {threads}, and training is on {device.type.upper()}, which computes what "
            "threads want one after the other; accepted: train.device=cpu, or threads=1"
        )
    return device


def run_facts(session: Session, member: Membership) -> Facts:
    """Facts that all workers of a run must agree on before its network is built: code and settings."""
    return code_facts(user_objects(session)) | setting_facts((member.session or session).settings())


def new_model(
    session: Session, device: torch.device, member: Membership, recorder: Recorder
) -> tuple[Model, TrialResult | None]:
    """The network as the run begins, and what rank 0 found when it tried it. Raises BadInput, as `try_first`."""
    recorder.starting("building the network")
    seed_all(session.train.seed)
    model = build_model(session, device, member.begun_with)
    tried = try_first(model, device, member.place, recorder)
    return as_trained(model, device), tried


def as_trained(model: Model, device: torch.device) -> Model:
    """The network as it is trained: compiled, if its session says so. Raises SettingError if it cannot be."""
    if not model.session.train.compile:
        return model
    return replace(model, module=compiled(model.module, device))


def average_of(session: Session, steps_per_epoch: int) -> Averaging | None:
    """The average of weights that a session keeps, if it does."""
    return Averaging.of(session.train, steps_per_epoch)


def trained_network(
    model: Model,
    device: torch.device,
    steps: int,
    steps_per_epoch: int,
    *,
    feed: Feed | None = None,
    absent: Callable[[], Tensor] | None = None,
    averaging: Averaging | None = None,
    averages: bool = False,
) -> TrainedNetwork:
    """Make what a worker trains in a run of so many steps. Raises SettingError if no parameter is trained.

    feed: whose batches the schedule goes by; None: by the number of the update. absent: returns a scalar; see `Flow`.
    averaging: of the worker's own parameters. averages: an average of weights is kept.
    """
    schedule = schedule_of(model.session, steps_per_epoch, feed)
    trained = list(trained_parameters(model.module).items())
    if not trained:
        raise SettingError("network: none of its parameters is trainable; at least one must have requires_grad")
    precision, rule = Precision(model.session.train.precision, device), update_rule(model.session, model.factors)
    update = Update(trained, schedule, model.session.train, precision, steps, *rule, averaging)
    return TrainedNetwork(model.flow("train", absent), device, precision, update, model.mixing, averages)


def training(
    model: Model,
    recorder: Recorder,
    replica: Replica,
    coordinator: Who,
    network: TrainedNetwork,
    workers: int,
    part: Part | None = None,
) -> Training[Who]:
    """Put together what the loop needs on one of so many workers. part: what it runs; None: the whole network.

    Raises SettingError for a network that threads of a worker cannot share.
    """
    uncounted = UncountedLoss(model.criterion, recorder, workers * model.session.train.accumulate)
    return Training(
        flow=network.flow,
        evaluating=model.flow("evaluate", part.absent if part else None),
        device=network.device,
        precision=network.precision,
        recorder=recorder,
        replica=replica,
        coordinator=coordinator,
        writer=TextWriter.of(model),
        uncounted=uncounted,
        learn=part.learn if part else whole_batch,
        threads=_threads(model, network, uncounted),
    )


def _threads(model: Model, network: TrainedNetwork, uncounted: UncountedLoss) -> LockFreeThreads | None:
    if (threads := model.session.strategy.consistency.threads) == 1:
        return None
    if model.in_streams:
        raise SettingError(
            f"strategy.consistency.threads is {threads}, and the network keeps a state from batch to batch, which "
            "threads learn from at once; accepted: 1"
        )
    return LockFreeThreads(threads, network.flow, network.update, network.precision, uncounted.look)
