"""Layers that are cut learn sub-batch by sub-batch of each batch, and the layers before them the batch at once.

Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks", arXiv:1404.5997, "Variable batch
size": what follows the convolutions is passed forward and backward for a sub-batch, and the layers that are cut are
updated, before the next one. A sub-batch is one worker's samples (scheme 2), or a part of every worker's (scheme 3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from volary.comm.groups.blocking import gather
from volary.errors import SettingError
from volary.naming import named_modules
from volary.partition.cutting.hybrid_layer import END, HybridLinear
from volary.partition.cutting.hybrid_network import take_part
from volary.partition.cutting.read_by_hand import refuse_reads
from volary.partition.pipelining.chain import chain_of

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.comm.groups.layer_group import LayerGroup
    from volary.partition._base import Passes
    from volary.partition.cutting.hybrid_layer import Calls


class SubBatches:
    """Lets `module`, whose layers `names` are to be cut, learn so. scheme: 2 or 3.

    Raises SettingError if its code cannot be followed, or such a layer is frozen.
    """

    def __init__(self, module: nn.Module, names: Sequence[str], scheme: int) -> None:
        self._module, self._names, self._scheme = module, names, scheme
        layers = dict(named_modules(module))
        self._cut = {one: f"{name}.{own}" for name in names for own, one in layers[name].named_parameters()}
        if frozen := [name for one, name in self._cut.items() if not one.requires_grad]:
            raise SettingError(
                f"updates is sub_batch, and {frozen[0]} is frozen, of a layer that is cut; accepted: layers without "
                "it, or updates=batch"
            )
        chain = chain_of(module, "hybrid with updates=sub_batch")
        nodes = (node for link in chain.links for node in link.nodes)
        refuse_reads(nodes, set(self._cut.values()), "hybrid", "layers")
        first = next(at for at, link in enumerate(chain.links) if any(map(link.has, names)))
        self._before = chain.part(0, first) if first else None
        self._behind = chain.part(first, len(chain.links))

    def join(self, cut: Callable[[Group], LayerGroup], group: Group) -> LayerGroup:
        """See `volary.partition._base.Part`. cut: leaves this rank with its outputs of the layers."""
        joined = cut(group)
        self._first.within.follow(self._behind)  # which runs in place of the network
        return joined

    def learn(self, passes: Passes) -> bool:
        """See `volary.partition._base.Part`. A collective call of the ranks that hold the parts."""
        turns = self._turns(passes)
        mine = [one for one in turns if one is not None]
        inputs = torch.cat([one.inputs for one in mine]) if mine else passes.inputs[:0]
        crossing = passes.through(self._before, inputs) if self._before is not None and mine else inputs
        given = crossing.detach().requires_grad_(crossing.requires_grad)
        rows = iter(given.split([len(one.inputs) for one in mine])) if mine else iter([given])
        sums, errors, loss = (
            dict[nn.Parameter, Tensor](),
            list[Tensor](),
            passes.inputs.new_zeros((), dtype=torch.float),
        )
        for turn, share in zip(turns, self._shares(passes, turns), strict=True):
            if turn is None and share:
                passes.update(self._taken_part(), 1 / share)
            elif turn is not None:
                own, gradients, error = self._passed(turn, next(rows))
                loss = loss + own * turn.share / passes.share
                errors += error
                passes.update({one: gradients.pop(one) for one in list(gradients) if one in self._cut}, 1 / share)
                _add(gradients, sums)
        if errors:
            passes.turn_back()
            _add(_gradients(crossing, _trained(self._before), torch.cat(errors)), sums)
        wanted = passes.computed(loss)
        if wanted and sums:
            passes.add_gradients(sums)
        return wanted

    def _turns(self, passes: Passes) -> list[Passes | None]:
        """By sub-batch what this rank has of it; None: nothing that counts."""
        group = self._group
        found: list[Passes | None] = [None] * group.size
        if len(passes.inputs):
            own = passes.cut(1 if self._scheme == 2 else group.size)
            first = group.rank if self._scheme == 2 else 0
            found[first : first + len(own)] = own
        return found

    def _shares(self, passes: Passes, turns: Sequence[Passes | None]) -> list[float]:
        """The share of the batch that all ranks have of each sub-batch; a collective call."""
        own = torch.tensor([0.0 if one is None else one.share for one in turns], dtype=torch.double)
        with passes.waiting():
            found: list[float] = gather(own, self._group.group).sum(0).tolist()
        return found

    def _passed(self, turn: Passes, x: Tensor) -> tuple[Tensor, dict[nn.Parameter, Tensor], list[Tensor]]:
        """Forward and backward of what follows, from x (samples, ...): the loss, a scalar, gradients, and that of x if
        it has one; of the sub-batch's share of the batch's loss.
        """
        y = turn.through(self._behind, x)
        self._calls.agree(END)
        output = y.detach().requires_grad_()
        loss, gradient = turn.loss_of(output)
        turn.turn_back()
        given = [x] if x.requires_grad else []
        found = torch.autograd.grad(y, [*given, *(trained := _trained(self._behind))], gradient, allow_unused=True)
        named = {one: of for one, of in zip(trained, found[len(given) :], strict=True) if of is not None}
        return loss, named, [torch.zeros_like(x) if of is None else of for of in found[: len(given)]]

    def _taken_part(self) -> dict[nn.Parameter, Tensor]:
        """Gradients of this rank's parts, by samples that others have."""
        return _gradients(take_part(self._module, self._names), list(self._cut), None)

    @property
    def _first(self) -> HybridLinear:
        layer = dict(named_modules(self._module))[self._names[0]]
        assert isinstance(layer, HybridLinear), "the ranks have joined"
        return layer

    @property
    def _calls(self) -> Calls:
        return self._first.calls

    @property
    def _group(self) -> LayerGroup:
        return self._calls.group


def _trained(module: nn.Module | None) -> list[nn.Parameter]:
    return [] if module is None else [one for one in module.parameters() if one.requires_grad]


def _gradients(y: Tensor, trained: Sequence[nn.Parameter], gradient: Tensor | None) -> dict[nn.Parameter, Tensor]:
    """The gradients of the parameters that y depends on; gradient: by y."""
    if not y.requires_grad:
        return {}
    found = torch.autograd.grad(y, trained, gradient, allow_unused=True)
    return {one: of for one, of in zip(trained, found, strict=True) if of is not None}


def _add(gradients: Mapping[nn.Parameter, Tensor], sums: dict[nn.Parameter, Tensor]) -> None:
    for one, gradient in gradients.items():
        sums[one] = sums[one] + gradient if one in sums else gradient
