"""The optimiser's state of each parameter in a snapshot, in the words of torch's optimisers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.naming import named_parameters
from volary.network.caffe.types.parameters import parameters_of
from volary.network.caffe.weights.loading import fits, shape_of, shown, values_as

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

    from volary.network.caffe.solver.snapshot import SolverSnapshot
    from volary.network.caffe.translating import Translation

# by optimiser, what a history is; several: first one history of each parameter, then another
ENTRIES = {
    "caffe_sgd": ("history",),
    "adagrad": ("sum",),
    "rmsprop": ("square_avg",),
    "adadelta": ("square_avg", "acc_delta"),
    "adam": ("exp_avg", "exp_avg_sq"),
}
_SQUARES = ("sum", "square_avg", "acc_delta", "exp_avg_sq")
_OF_BATCH_NORM = 3  # Caffe keeps histories of its statistics, which it never uses


def histories(
    module: nn.Module, translation: Translation, snapshot: SolverSnapshot, optimizer: str
) -> dict[str, dict[str, Tensor]]:
    """The values that this optimiser remembers of each parameter, by name, in the parameter's shape.

    Raises SettingError for a snapshot of another solver's type, or of another network.
    """
    kinds, slots = ENTRIES.get(optimizer), list(_slots(module, translation))
    if kinds is None:
        raise SettingError(
            f"optimizer is {optimizer}, which no snapshot of Caffe's is of; accepted: {', '.join(ENTRIES)}"
        )
    if len(snapshot.history) != len(kinds) * len(slots):
        raise SettingError(
            f"{snapshot.file}: has {len(snapshot.history)} histories; accepted: {len(kinds) * len(slots)}, which "
            f"{optimizer} has of this network: it is of another solver's type or another network"
        )
    found: dict[str, dict[str, Tensor]] = {}
    for number, blob in enumerate(snapshot.history):
        slot, kind = slots[number % len(slots)], kinds[number // len(slots)]
        if slot is None:
            continue
        name, parameter, transposed = slot
        shape = shape_of(parameter, transposed=transposed)
        if not fits(blob, shape):
            raise SettingError(
                f"{snapshot.file}: history {number} has the shape {shown(blob.shape)}; accepted: {shown(shape)}, that "
                f"of {name}"
            )
        values = values_as(blob, parameter, transposed=transposed)
        if kind in _SQUARES and bool((values < 0).any()):
            raise SettingError(
                f"{snapshot.file}: history {number} has values below 0, and {optimizer} has sums of squares of {name}: "
                "it is of another solver's type"
            )
        found.setdefault(name, {})[kind] = values
    return found


def _slots(module: nn.Module, translation: Translation) -> Iterator[tuple[str, Tensor, bool] | None]:
    """Yield Caffe's parameters, in its order: name, parameter, whether it is transposed; None: no parameter here.

    Parameters that layers share count once.
    """
    names = {id(parameter): name for name, parameter in named_parameters(module)}
    seen: set[int] = set()
    for one in translation.layers:
        if one.layer.phase == "evaluate":
            continue
        if one.translated.statistics:
            yield from [None] * _OF_BATCH_NORM
        own = module.get_submodule(one.layer.name)
        for number, called in enumerate(parameters_of(one.message)):
            parameter = own.get_parameter(called)
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield names[id(parameter)], parameter, one.translated.transposed and number == 0
