"""torch's graph of a network, for any number of samples, and whether another form of it computes the same."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch

from volary.errors import SettingError, VolaryError
from volary.errors.raised import raised
from volary.network.criteria.fit import main_output

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from torch.export import ExportedProgram

    from volary.train.predicting.predictor import Predictor

TOLERANCE = 1e-4  # of the largest output
_SAMPLES = (2, 3)  # the graph is made with two; it has to take any number


def sample(predictor: Predictor, count: int) -> Tensor:
    """Inputs (count, ...) of the network's kind: the same each time, and not all alike."""
    shape = (count, *predictor.input_shape)
    if not predictor.input_dtype.is_floating_point:
        most = max(2, predictor.names.count)
        return torch.arange(torch.Size(shape).numel(), dtype=predictor.input_dtype).reshape(shape) % most
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(predictor.input_dtype)


def traced(predictor: Predictor) -> ExportedProgram:
    """The network as a graph, whose first dimension is open. Raises SettingError if torch cannot make one."""
    inputs = sample(predictor, _SAMPLES[0])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of how torch's own LSTM keeps its weights
            return torch.export.export(predictor.module, (inputs,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    except Exception as error:  # whatever the user's code and torch raise
        raise SettingError(f"the network cannot be exported: {raised(error).error}") from error


@torch.no_grad()
def compared(predictor: Predictor, other: Callable[[Tensor], Tensor], what: str) -> float:
    """The largest difference of `other`'s outputs (n, ...) from the network's, over the largest of these.

    what: the file, in a message. Raises VolaryError if that is more than TOLERANCE.
    """
    found = 0.0
    for count in _SAMPLES:
        inputs = sample(predictor, count)
        wanted = main_output(predictor.module(inputs)).float()
        given = other(inputs).float()
        if given.shape != wanted.shape:
            raise VolaryError(f"{what}: gives the shape {tuple(given.shape)}, the network {tuple(wanted.shape)}")
        largest = max(float(wanted.abs().max()), torch.finfo(torch.float32).tiny)
        found = max(found, float((given - wanted).abs().max()) / largest)
    if not found <= TOLERANCE:
        raise VolaryError(
            f"{what}: outputs differ from the network's by {found:.1e} of the largest; {TOLERANCE:g} may be"
        )
    return found
