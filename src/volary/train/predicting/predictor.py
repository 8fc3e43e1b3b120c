"""A run's network, ready to predict: with its weights, its preprocessing and the names of its classes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from volary.data.data_names import DataNames
from volary.data.unlabelled.unlabelled import ReadsUnlabelled, Unlabelled
from volary.errors import BadInput, SettingError
from volary.errors.raised import raised
from volary.network.criteria.classification import Classification
from volary.run.checkpoints import Checkpoints
from volary.run.database.reader import RunReader
from volary.session.script import Script
from volary.session.spec import Session
from volary.session.values.reference import name_of
from volary.train.data.opening import open_data
from volary.train.model import build_criterion, build_network
from volary.train.predicting.answers import Answers
from volary.train.predicting.as_trained import as_trained
from volary.train.predicting.layer_output import layer_output
from volary.train.state.weights import SavedWeights, load_weights

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from volary.run.directory import RunDirectory
    from volary.train.predicting.request import Request


@dataclass(frozen=True, eq=False)
class Predictor:
    """input_shape, input_dtype: of one input, as the run has recorded it. names: of classes and columns.

    classifies: whether outputs are scores of classes. layer: whose output is wanted; empty: the network's.
    """

    module: nn.Module
    session: Session
    names: DataNames
    classifies: bool
    layer: str
    device: torch.device
    input_shape: tuple[int, ...]
    input_dtype: torch.dtype
    compute: Callable[[Tensor], Any]

    @classmethod
    def of(cls, directory: RunDirectory, request: Request, device: torch.device) -> Predictor:
        """The network as the request wants it. Raises BadInput if it cannot be made, or has no such layer.

        The data of training is not opened, unless the run is too old to say what its inputs were like.
        """
        with RunReader(directory) as reader:
            info = reader.info()
        names = DataNames.read(info.get("data_names", ""))
        if request.own_loop:
            session = Script.read(directory.session).to_predict(request.overrides)
            shape: tuple[int, ...] = ()
        else:
            session = Session.read(directory.session, request.overrides)
            shape = _shape(info)
        module = build_network(session, shape, int(info.get("classes", "0")))
        checkpoints = Checkpoints(directory.checkpoints)
        load_weights(module, SavedWeights(checkpoints.path(request.step), checkpoints.verify(request.step)))
        module.to(device).eval()
        classifies = not request.layer and isinstance(build_criterion(session), Classification)
        compute = layer_output(module, request.layer) if request.layer else module
        dtype = getattr(torch, info.get("input_dtype", "float32"))
        return cls(module, session, names, classifies, request.layer, device, shape, dtype, compute)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of classes, by number; empty if outputs are no scores, or nobody says how many there are."""
        return self.names.all_classes if self.classifies else ()

    def inputs(self, given: Path) -> Unlabelled:
        """The inputs in a file or folder, as the run's source prepares them. Raises DataError."""
        if not given.exists():
            raise BadInput(f"{given}: there is no such file or folder; accepted: a file or folder of this machine")
        source: Any = self.session.data.source
        if isinstance(source, ReadsUnlabelled):
            return source.unlabelled(given, self.names)
        return as_trained(open_data(self.session, "train"), given, name_of(source))

    @torch.no_grad()
    def predict(self, inputs: Tensor, positions: Tensor, *, last: bool) -> Tensor:
        """The values (n, ...) in float32 of inputs (n, ...); see `Answers.of`.

        Raises SettingError if they do not fit.
        """
        length = inputs.shape[1] if last else 0
        try:
            output = self.compute(inputs.to(self.device))
        except (torch.OutOfMemoryError, BadInput):
            raise
        except Exception as error:  # whatever the user's code raises
            raise SettingError(f"the network cannot take these inputs: {raised(error).error}") from error
        classes = len(self.classes) if self.classes else int(self.classifies)
        return Answers(classes, last).of(output, positions.to(self.device), length)


def _shape(info: dict[str, str]) -> tuple[int, ...]:
    if "input_shape" not in info:
        raise BadInput("the run has no step yet, and so nothing to predict with")
    return tuple(map(int, filter(None, info["input_shape"].split(","))))
