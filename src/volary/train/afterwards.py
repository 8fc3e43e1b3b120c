"""A session or a run outside training: try it, evaluate it, have its network back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from volary.comm.groups.group import check_backend
from volary.data.feed import Feed
from volary.data.idle import refuse_idle_workers
from volary.errors import DataError, SettingError, VolaryError
from volary.errors.raised import raised
from volary.network.graph.module import GraphModule
from volary.network.graph.table import LayerRow, table
from volary.run.checkpoints import Checkpoints
from volary.run.database.reader import RunReader
from volary.session.script import Script
from volary.session.spec import Session
from volary.train.beginning.from_weights import begin
from volary.train.device import choose_device
from volary.train.evaluation import totals
from volary.train.holding import held_by_workers
from volary.train.lockstep.lockstep_data import ValidationBatches
from volary.train.model import Model, build_model, build_network
from volary.train.recording.recorder import Recorder
from volary.train.state.optimizer_state import load_checkpoint
from volary.train.state.seeds import kept_generators
from volary.train.trial import try_session
from volary.train.trying import worker_memory
from volary.train.update.precision import check_precision

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from volary.run.directory import RunDirectory


@dataclass(frozen=True)
class Summary:
    """Figures of a session. steps: updates of the whole run. input_shape: of one sample. warnings: sentences.

    layers: of a network that is a graph of named layers. holds: what each worker holds, of a network in parts.
    partitions: what a step is predicted to take with each. memory: of a worker on the CPU. largest_batch: the
    `data.batch_size` with which workers still fit into this machine's memory. step_s, epoch_s: seconds
    that a worker computes in a step and in an epoch. None: not known.
    """

    parameters: int
    samples: int | None
    input_shape: tuple[int, ...]
    steps_per_epoch: int | None
    steps: int
    warnings: list[str]
    layers: list[LayerRow]
    holds: list[str]
    partitions: list[str]
    memory: worker_memory.WorkerMemory | None
    largest_batch: int | None
    step_s: float | None
    epoch_s: float | None


def check_session(session: Session) -> Summary:
    """Open the data, build the network and try it on two samples, as a run does. Raises BadInput if they do not fit.

    Nothing of this process is changed by it but which modules are imported.
    """
    workers = session.strategy.workers
    device = choose_device(session.train.device, 0, workers)
    check_precision(session.train.precision, device)
    check_backend(session.strategy.backend, device)
    with kept_generators():
        model = build_model(session, device)
        begin(model)
    tried = try_session(model, device, workers, started=False)
    feed = Feed(model.samples, session.data.batch_size, shuffle=False)
    refuse_idle_workers(session.strategy.shares, session.data.batch_size, feed.samples)
    session.data.batch.build(feed, Recorder(0))
    cost, own = tried.cost, tried.predicted.own if tried.predicted else None
    apart = own is not None and own.session.strategy.shares < workers
    memories = own.memories if own else [worker_memory.worker_memory(session, model.module)]
    memory = own.memory if own else memories[0]
    warnings = [*tried.warnings, *(worker_memory.too_little(memory, workers) if device.type == "cpu" else [])]
    per_epoch = feed.steps_per_epoch
    return Summary(
        parameters=sum(parameter.numel() for parameter in model.module.parameters()),
        samples=feed.samples,
        input_shape=model.samples.input_shape,
        steps_per_epoch=feed.steps_per_epoch,
        steps=session.train.steps or feed.steps_in(session.train.epochs or 0),
        warnings=warnings,
        holds=held_by_workers(
            own.session if own else session, model.module, tried.network, [one.activations for one in memories]
        ),
        partitions=list(tried.predicted.compared()) if tried.predicted else [],
        layers=table(model.module) if isinstance(model.module, GraphModule) else [],
        memory=memory if device.type == "cpu" else None,
        largest_batch=worker_memory.largest_batch(memories, workers, session.data.batch_size)
        if device.type == "cpu"
        else None,
        step_s=cost.compute_s if cost and not apart else None,
        epoch_s=cost.compute_s * per_epoch if cost and per_epoch and not apart else None,
    )


def load_model(directory: RunDirectory, step: int, session: Session | None = None, *, average: bool = False) -> Model:
    """The run's network with the weights of the checkpoint of `step`, on the CPU, in evaluation mode.

    session: that says how to make it; None: the run's. average: with their averages. Raises RunError without any.
    """
    with RunReader(directory) as reader:
        begun_with = reader.info().get("data_names", "")
    model = build_model(session or Session.read(directory.session), torch.device("cpu"), begun_with)
    _load(model.module, directory, step, average=average)
    return model


def load_trained(directory: RunDirectory, step: int, *, average: bool = False) -> tuple[nn.Module, tuple[int, ...]]:
    """The run's network with the weights of the checkpoint of `step`, on the CPU, in evaluation mode; the shape of an
    input. The data of training is not opened, so that it may be gone.

    average: with their averages. Raises RunError without any.
    """
    with RunReader(directory) as reader:
        info = reader.info()
    shape = tuple(map(int, filter(None, info["input_shape"].split(","))))
    module = build_network(Session.read(directory.session), shape, int(info["classes"]))
    _load(module, directory, step, average=average)
    return module, shape


def load_network(directory: RunDirectory, step: int, *, average: bool = False) -> nn.Module:
    """The same of a run of a loop of one's own, whose network is named. Raises SettingError if it cannot be made."""
    module = Script.read(directory.session).new_network()
    if not isinstance(module, torch.nn.Module):
        raise SettingError(f"network makes a {type(module).__name__}; accepted: a torch module")
    _load(module, directory, step, average=average)
    return module


def _load(module: nn.Module, directory: RunDirectory, step: int, *, average: bool = False) -> None:
    checkpoints = Checkpoints(directory.checkpoints)
    folder, manifest = checkpoints.path(step), checkpoints.verify(step)
    load_checkpoint(module, folder, manifest, average=average)
    module.eval()


def evaluate_run(
    directory: RunDirectory,
    step: int,
    say: Callable[[str], None] = lambda _: None,
    session: Session | None = None,
    *,
    average: bool = False,
) -> dict[str, float]:
    """The figures of the checkpoint of `step` on the validation data, on the CPU in this process.

    session: that says how, if it is not the run's. say: what could not be read. average: of the averages of its
    weights. Raises DataError if more could not be read than the session allows, and RunError without averages.
    """
    model = load_model(directory, step, session, average=average)
    share = model.session.data.skip_corrupt

    batches = ValidationBatches(model, report=lambda _, reason: say(reason))()
    try:
        flow = model.flow("evaluate")
        found, lost, samples = totals(flow, batches, torch.device("cpu"))
    except VolaryError:
        raise
    except Exception as error:  # whatever the user's code raises
        raise SettingError(f"the network cannot be measured on this data: {raised(error).error}") from error
    if lost > share * samples:
        raise DataError(f"{lost} of {samples} samples could not be read; data.skip_corrupt allows fewer")
    if lost:
        say(f"{lost} of {samples} samples could not be read; figures are of the others")
    return flow.figures(found)
