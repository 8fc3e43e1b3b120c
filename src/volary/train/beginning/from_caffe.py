"""The first checkpoint of a run that continues from a snapshot of Caffe's: resuming it is what every run can."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import torch

from volary.data.datasets.stream import Stream
from volary.errors import SettingError
from volary.network.caffe.module import inputs_of
from volary.network.caffe.solver.history import histories
from volary.network.caffe.source import read_net
from volary.network.caffe.translating import Translator
from volary.network.zoo.caffe import Caffe
from volary.run.checkpoints import ROSTER
from volary.server.roster.portions import RemainingSamples
from volary.server.roster.state import RosterState
from volary.session.values.reference import name_of
from volary.sharding.epochs import Epochs
from volary.sharding.ranges import Range
from volary.train.beginning.first_checkpoint import FirstCheckpoint
from volary.train.beginning.from_weights import begin
from volary.train.model import build_model
from volary.train.state.optimizer_state import OPTIMIZER, OptimizerState
from volary.train.state.part_state import PartState
from volary.train.state.state_file import StateContent
from volary.train.state.weights import WEIGHTS, weights_content, weights_of
from volary.train.update.optimizer_rule import COUNTER

if TYPE_CHECKING:
    from volary.network.caffe.solver.snapshot import SolverSnapshot
    from volary.run.content import Content
    from volary.session.spec import Session


def first_checkpoint(session: Session, snapshot: SolverSnapshot) -> FirstCheckpoint:
    """The checkpoint that a run of this session begins with: the snapshot's weights and histories, and the samples of
    its iterations learnt from.

    Raises SettingError if they do not fit the session's network and optimiser.
    """
    network = session.network
    if not isinstance(network, Caffe):
        raise SettingError("network is none of Caffe's; accepted with a snapshot: that of the solver")
    model = build_model(session, torch.device("cpu"))
    begin(model)
    if isinstance(model.samples, Stream):
        raise SettingError("data.source is a stream; accepted with a snapshot: samples that are read by index")
    source = read_net(network.caffe, network.stages)
    translation = Translator(source, inputs_of(source, model.samples.input_shape)).translate()
    remembered = histories(model.module, translation, snapshot, name_of(session.optimizer))
    step = snapshot.iterations
    counter = {} if name_of(session.optimizer) == "caffe_sgd" else {COUNTER: torch.tensor(float(step))}
    state = OptimizerState(
        PartState(Range(name, 0, values[0].numel()), {kind: one.flatten() for kind, one in entries.items()}, counter)
        for name, entries in remembered.items()
        if (values := list(entries.values()))
    )
    files: dict[str, Content] = {
        WEIGHTS: weights_content(weights_of(model.module)),
        OPTIMIZER: StateContent(state.plain()),
        ROSTER: msgspec.json.encode(_progress(step, len(model.samples), session.data.batch_size)),
    }
    return FirstCheckpoint(step, files)


def _progress(step: int, samples: int, batch_size: int) -> RosterState:
    """As if the run had learnt from so many batches of its own."""
    epochs = Epochs(samples, batch_size)
    epoch, position = epochs.end_of(step)
    begun = [(epoch, position, samples)] if position else []
    return RosterState(step, epochs.samples_of(step), RemainingSamples(epoch + len(begun), begun))
