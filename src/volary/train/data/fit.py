"""Fits a session's network and loss to its data: what cannot be is refused, and the loss learns of the classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.data.choosing.classes import classes_of
from volary.data.data_names import DataNames
from volary.data.datasets.stream import Stream
from volary.errors import SettingError
from volary.network.criteria.class_weights import WeighsClasses
from volary.network.operations.sync_norm import has_batch_norm
from volary.session.values.reference import name_of
from volary.train.data.streams import fit_streams

if TYPE_CHECKING:
    from torch import Tensor, nn

    from volary.data.samples import Samples
    from volary.network.criterion import Criterion
    from volary.session.spec import Session

_ASKED = "loss.class_weights is balanced"


def fit_to_data(session: Session, module: nn.Module, criterion: Criterion, samples: Samples | Stream) -> None:
    """Let the network and the loss suit the samples of the training part.

    Raises SettingError for weights of classes that the data has not, for a stream that was to be counted or that a
    network with a state reads, and for batch norm of all workers where there is none; DataError if the data does not
    say the class of each sample.
    """
    if session.train.sync_batch_norm and not has_batch_norm(module):
        name = name_of(session.network)
        raise SettingError(
            f"train.sync_batch_norm is true, and network {name!r} has no batch norm in it; accepted: false"
        )
    fit_streams(session, module, samples)
    if isinstance(criterion, WeighsClasses):
        _weigh(criterion, samples)


def _weigh(criterion: WeighsClasses, samples: Samples | Stream) -> None:

    def counts() -> Tensor:
        if isinstance(samples, Stream):
            raise SettingError(f"{_ASKED}, and {samples.name} is a stream, which nobody has counted; accepted: numbers")
        return classes_of(samples, _ASKED).bincount(minlength=samples.classes or 0)

    criterion.weigh(DataNames.of(samples).all_classes, counts)
