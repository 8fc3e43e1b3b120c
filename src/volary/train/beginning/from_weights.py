"""A network's first values out of a file: what all of a session's strategies begin with."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING

import torch

from volary.errors import SettingError
from volary.naming import named_parameters
from volary.network.zoo._base import Network
from volary.session.values.reference import UserObject
from volary.train.beginning.matching import SCALES, match
from volary.train.beginning.stored import stored_tensors
from volary.train.state.weights import weights_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from volary.network.starting_weights import StartingWeights
    from volary.session.spec import Session
    from volary.train.beginning.stored import Stored
    from volary.train.model import Model

HOW = (
    "accepted: rename for names that differ, leave_out for names of the file, fresh for layers that are drawn "
    "(replace_last: true for those with another number of classes)"
)


def begin(model: Model) -> None:
    """Read the weights that the session names, if any, into its network. Raises as `read_session_weights`."""
    read_session_weights(model.session, model.module, model.samples.input_shape, model.classes)


def read_session_weights(session: Session, module: nn.Module, input_shape: tuple[int, ...], classes: int) -> None:
    """Read the weights that the session names, if any, into its network, which was built for such inputs and classes.

    Raises SettingError with all that is wrong.
    """
    network, weights = session.network, session.weights
    if weights is None:
        return
    if isinstance(network, UserObject):
        _refuse_own_argument(network)
    if isinstance(network, Network):
        if network.read_own_weights(module, network.input_shape or input_shape):
            return
        read_weights(module, weights, network.classes or classes)
    else:
        read_weights(module, weights, classes)


@torch.no_grad()
def read_weights(module: nn.Module, weights: StartingWeights, classes: int = 0) -> None:
    """Set the module's parameters and buffers to a file's values, in the module's own types.

    classes: what `replace_last` goes by. Raises SettingError with a sentence for each tensor that does not fit.
    """
    own, found = weights_of(module), stored_tensors(weights)
    shapes = {name: tuple(tensor.shape) for name, tensor in own.items()}
    matched = match(shapes, _aliases(module), found, weights, classes)
    problems = matched.problems
    if not problems:
        for name, theirs in matched.pairs.items():
            values = found[theirs].read()
            if values.is_floating_point() != own[name].is_floating_point():
                problems.append(f"{name} is {_type(values)} in the file and {_type(own[name])} here")
                continue
            if (scale := _scale(theirs, found)) is not None and values.element_size() == 1:
                values = values.float() * _spread(scale.float(), values.shape)
            own[name].copy_(values)
        for name, theirs in matched.again:
            first = matched.pairs.get(name)
            if first is not None and not torch.equal(found[first].read(), found[theirs].read()):
                problems.append(f"{name} is both {first} and {theirs} in the file, whose values differ")
    if problems:
        many = f"{len(problems)} things do not fit" if len(problems) > 1 else "one thing does not fit"
        where = f"network.weights: {weights.path}: {many} ({len(matched.pairs)} of {len(own)} tensors were found)"
        raise SettingError("\n".join([where, *(f"  {one}" for one in problems), f"  {HOW}"]))


def _aliases(module: nn.Module) -> Mapping[str, str]:
    """Other names of parameters that are shared, and the name that each has here."""
    first = {id(one): name for name, one in named_parameters(module)}
    every = named_parameters(module, remove_duplicate=False)
    return {name: first[id(one)] for name, one in every if name != first[id(one)]}


def _scale(name: str, found: Stored) -> Tensor | None:
    beside = next((name + suffix for suffix in SCALES if name + suffix in found), None)
    return None if beside is None else found[beside].read()


def _spread(scale: Tensor, shape: torch.Size) -> Tensor:
    """A factor for each value, (...) as `shape`: of the whole tensor, of each row, or of blocks of equal size."""
    if scale.ndim != len(shape):
        return scale.reshape(-1, *[1] * (len(shape) - 1)) if scale.numel() > 1 else scale
    for dim, size in enumerate(shape):
        if scale.shape[dim] not in (1, size):
            scale = scale.repeat_interleave(ceil(size / scale.shape[dim]), dim).narrow(dim, 0, size)
    return scale


def _type(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _refuse_own_argument(network: UserObject) -> None:
    """Raise SettingError if the user's function has an argument called `weights`, which it would not be given."""
    import inspect

    try:
        takes = "weights" in inspect.signature(network.load()).parameters
    except (TypeError, ValueError):
        return
    if takes:
        raise SettingError(
            f"network.weights: {network.name!r} has an argument of that name, which it is not given; accepted: a "
            "function of your own that calls it"
        )
