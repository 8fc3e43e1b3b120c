"""What can be done with a session or a run outside training: try it, evaluate it, have its network back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from volary.data.feed import Feed
from volary.run.checkpoints import Checkpoints
from volary.session.spec import Session
from volary.train.assemble import HeldBack, Model, build_model
from volary.train.evaluation import measure
from volary.train.recorder import Recorder
from volary.train.weights import load_weights, saved_weights

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory


@dataclass(frozen=True)
class Summary:
    """What a session comes to. steps: updates of the whole run. input_shape: of one sample."""

    parameters: int
    samples: int | None
    input_shape: tuple[int, ...]
    steps_per_epoch: int | None
    steps: int


def check_session(session: Session) -> Summary:
    """Open the data, build the network and try it once. Raises BadInput if they do not fit."""
    model = build_model(session, torch.device("cpu"))
    feed = Feed(model.samples, session.data.batch_size, shuffle=False)
    session.data.batch.build(feed, Recorder(0))
    return Summary(
        parameters=sum(parameter.numel() for parameter in model.module.parameters()),
        samples=feed.samples,
        input_shape=model.samples.input_shape,
        steps_per_epoch=feed.steps_per_epoch,
        steps=session.train.steps or feed.steps_in(session.train.epochs or 0),
    )


def load_model(directory: RunDirectory, step: int) -> Model:
    """The run's network with the weights of the checkpoint of `step`, on the CPU, in evaluation mode."""
    checkpoints = Checkpoints(directory.checkpoints)
    manifest = checkpoints.verify(step)
    model = build_model(Session.read(directory.session), torch.device("cpu"))
    load_weights(model.module, saved_weights(checkpoints.path(step), manifest))
    model.module.eval()
    return model


def evaluate_run(directory: RunDirectory, step: int) -> dict[str, float]:
    """The figures of the checkpoint of `step` on the validation data, on the CPU in this process."""
    model: Any = load_model(directory, step)
    return measure(model.flow("evaluate"), HeldBack(Session.read(directory.session))(), torch.device("cpu"))
