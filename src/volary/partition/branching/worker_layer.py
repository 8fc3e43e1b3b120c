"""Runs layers on the workers that have them, in place of their forward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from volary.comm.groups.layer_group import LayerGroup
from volary.errors import BadInput
from volary.naming import named_modules, named_parameters
from volary.partition.branching.passing import BranchPassing
from volary.partition.branching.placement import crossings
from volary.partition.cutting.own_draws import OwnDraws

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.network.graph.form import Phase
    from volary.partition.branching.placement import Crossings, Workers
    from volary.sharding.holdings import Holdings


class WorkerLayer:
    """A layer's `forward`, of any tensors to one or a tuple of them, on the workers that `passing` names.

    crosses: by phase what comes from other workers, and goes to them; none: all.
    """

    def __init__(self, name: str, layer: nn.Module, passing: BranchPassing, crosses: Mapping[Phase, Crossings]) -> None:
        self._name, self._layer, self._passing, self._crosses = name, layer, passing, crosses
        self._forward: Callable[..., Any] = layer.forward
        self._draws = OwnDraws(passing.workers[0])  # the same numbers on all that have it

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Run it here, or have what others make of it."""
        crossing = self._crosses.get("train" if self._layer.training else "evaluate")
        leaves, form = pytree.tree_flatten((given, named))
        entering = [True] * len(leaves) if crossing is None else crossing.enters
        within = [
            self._passing.enter(one) if isinstance(one, Tensor) and enters else one
            for one, enters in zip(leaves, entering, strict=True)
        ]
        if self._layer.training:
            self._draws.begin()
        made = self._made(pytree.tree_unflatten(within, form)) if self._passing.here else None
        if self._layer.training:
            self._draws.end()
            self._share_buffers()
        if crossing is not None and not any(crossing.leaves):
            return made if self._passing.here else self._nothing(len(crossing.leaves))
        values = None if made is None else [made] if isinstance(made, Tensor) else list(made)
        found = self._passing.leave(values)
        return found[0] if len(found) == 1 else tuple(found)

    def _made(self, given: Any) -> Any:
        positional, named = given
        made = self._forward(*positional, **named)
        several = isinstance(made, tuple | list) and all(isinstance(one, Tensor) for one in made)
        if not isinstance(made, Tensor) and not several:
            raise BadInput(
                f"partition=branches: {self._name} gives a {type(made).__name__}; accepted: a tensor, or several in a "
                "tuple"
            )
        return made

    def _share_buffers(self) -> None:
        """Give the workers that do not have the layer what has become of its buffers, as batch norm's statistics."""
        for buffer in self._layer.buffers():
            found = self._passing.shared(buffer if self._passing.here else None, buffer)
            if not self._passing.here:
                buffer.copy_(found)

    def _nothing(self, count: int) -> Any:
        none = self._passing.nothing
        return none if count == 1 else (none,) * count


def leave_branches(module: nn.Module, branches: Mapping[str, Workers], holdings: Holdings, group: Group) -> LayerGroup:
    """Leave this rank with the branches that it has, in place; parameters stay the same objects.

    branches: who has which. Returns what its layers communicate in. A collective call of `group`, the ranks that hold
    this replica.
    """
    own, layers, named = LayerGroup(group), dict(named_modules(module)), dict(named_parameters(module))
    with torch.no_grad():
        for name, block in holdings.blocks.items():
            named[name].data = block.taken_from(named[name].data)
    device = next(module.parameters()).device
    passing = {workers: BranchPassing(own, workers, device) for workers in dict.fromkeys(branches.values())}
    crosses: dict[str, dict[Phase, Crossings]] = {}
    for (name, phase), one in crossings(module, branches).items():
        crosses.setdefault(name, {})[phase] = one
    for name, workers in branches.items():
        layer = layers[name]
        vars(layer)["forward"] = WorkerLayer(name, layer, passing[workers], crosses.get(name, {}))

    def begin(*_: Any) -> None:
        for one in passing.values():
            one.begin()

    module.register_forward_pre_hook(begin)
    module.register_forward_hook(begin, always_call=True)
    return own
