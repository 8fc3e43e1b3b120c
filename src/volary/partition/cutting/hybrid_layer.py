"""A fully connected layer whose outputs are cut over workers that each have samples of their own.

Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks", arXiv:1404.5997, section 3. Each
worker has all values of its samples before and after the layer; within, it computes some outputs of all samples. The
scheme is what is handed over at a time: all workers' samples; one worker's, while the next one's are on their way; or a
part of every worker's, likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional

from volary.comm.groups.blocking import gather
from volary.errors import RanksDiffer
from volary.partition.cutting.read_by_hand import HeldInPart

if TYPE_CHECKING:
    from volary.comm.groups.layer_group import LayerGroup

Scheme = Literal[1, 2, 3]
Spans = Sequence[tuple[int, int]]  # of each rank's samples, those that are handed over at once
ANY, END = "?", "!"


def portions(scheme: Scheme, rows: Sequence[int]) -> list[Spans]:
    """Yield the portions that are handed over at once, in order. rows: how many each rank has."""
    ranks = range(len(rows))
    if scheme == 1:
        return [[(0, count) for count in rows]]
    if scheme == 2:
        return [[(0, rows[rank] if rank == turn else 0) for rank in ranks] for turn in ranks]
    bounds = [list(pairwise(count * turn // len(rows) for turn in range(len(rows) + 1))) for count in rows]
    return [[bounds[rank][turn] for rank in ranks] for turn in ranks]


@dataclass(frozen=True)
class Calls:
    """Finds what all ranks run next of the layers with these names. A rank without samples takes part in what others
    run.
    """

    group: LayerGroup
    names: Sequence[str]

    def agree(self, name: str, rows: int = 0, *, needed: bool = False) -> tuple[str, list[int], bool]:
        """Say which layer this rank runs, END behind the last one, or ANY without samples; what all run, how many rows
        each rank has, and whether the gradient of its inputs is needed. A collective call.

        Raises RanksDiffer if ranks run different layers.
        """
        known = [ANY, END, *self.names]
        own = torch.tensor([known.index(name), rows, int(needed)])
        with self.group.waiting():
            everybody = gather(own, self.group.group).tolist()
        runs = {known[place] for place, _, _ in everybody if known[place] != ANY} or {END}
        if len(runs) > 1:
            listed = ", ".join(f"rank {rank} runs {known[place]}" for rank, (place, _, _) in enumerate(everybody))
            raise RanksDiffer(
                f"partition=hybrid: ranks are at different layers ({listed}), and must run the same ones; accepted: to "
                "leave those that depend on samples out of strategy.partition.layers"
            )
        return runs.pop(), [count for _, count, _ in everybody], any(need for _, _, need in everybody)


class HybridLinear(HeldInPart, nn.Linear):
    """Gives all outputs of its own samples, and computes its own outputs of all samples.

    `weight` is (own outputs, inputs). sizes: outputs of each rank.
    """

    group: LayerGroup
    sizes: Sequence[int]
    scheme: Scheme
    calls: Calls

    def forward(self, inputs: Tensor) -> Tensor:
        """(..., inputs) to (..., sum of sizes)."""
        flat = inputs.reshape(-1, inputs.shape[-1]).to(self.weight.dtype)
        needed = torch.is_grad_enabled() and flat.requires_grad
        _, rows, needed = self.calls.agree(self.name, len(flat), needed=needed)
        return self.handed_over(flat, rows, needed=needed).view(*inputs.shape[:-1], sum(self.sizes))

    def handed_over(self, own: Tensor, rows: Sequence[int], *, needed: bool) -> Tensor:
        """Hand over what all agreed to run: (rows, inputs) of this rank to (rows, outputs). needed: the gradient of
        inputs is.

        rows: of each rank.
        """
        hand = _Hand(self, portions(self.scheme, rows), needed)
        with torch.autocast(own.device.type, enabled=False):
            found: Tensor = _HandedOver.apply(own, self.weight, self.bias, hand)  # type: ignore[no-untyped-call]
        return found

    def own_columns(self) -> Iterator[tuple[int, int]]:
        """Yield the first and the last of each rank's outputs."""
        at = 0
        for size in self.sizes:
            yield at, at + size
            at += size


@dataclass(frozen=True)
class _Hand:
    """One pass through a layer: what is handed over in which order."""

    layer: HybridLinear
    spans: Sequence[Spans]
    needed: bool


class _HandedOver(Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, weight: Tensor, bias: Tensor | None, hand: _Hand) -> Tensor:
        layer, spans, taken = hand.layer, hand.spans, list[Tensor]()
        group, rank = layer.group, layer.group.rank
        outputs = own.new_empty(len(own), sum(layer.sizes))

        def give(span: Spans) -> Callable[[], list[Tensor]]:
            mine = own[slice(*span[rank])]
            return group.exchanging([mine] * group.size, [own.new_empty(end - low, own.shape[1]) for low, end in span])

        returned = []
        for span, theirs in _ahead(spans, give):
            taken.append(torch.cat(theirs))
            found = functional.linear(taken[-1], weight, bias).split([end - low for low, end in span])
            low, end = span[rank]
            returned.append(group.exchanging(found, [own.new_empty(end - low, size) for size in layer.sizes]))
        for span, wait in zip(spans, returned, strict=True):
            outputs[slice(*span[rank])] = torch.cat(wait(), 1)
        ctx.hand, ctx.biased, ctx.rows = hand, bias is not None, len(own)
        ctx.save_for_backward(weight, *taken)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (gradient,) = gradients
        hand: _Hand = ctx.hand
        layer, spans, (weight, *taken) = hand.layer, hand.spans, ctx.saved_tensors
        group, rank = layer.group, layer.group.rank
        inputs = gradient.new_empty(ctx.rows, weight.shape[1]) if hand.needed else None
        of_weight: Tensor | None = None
        of_bias = weight.new_zeros(len(weight)) if ctx.biased and ctx.needs_input_grad[2] else None
        own, columns = layer.sizes[rank], list(layer.own_columns())

        def give(span: Spans) -> Callable[[], list[Tensor]]:
            mine = gradient[slice(*span[rank])]
            parts = [mine[:, low:end] for low, end in columns]
            return group.exchanging(parts, [gradient.new_empty(end - low, own) for low, end in span])

        returned = []
        for number, (span, theirs) in enumerate(_ahead(spans, give)):
            errors = torch.cat(theirs)
            if inputs is not None:  # first: it travels while the weight's is computed
                parts = (errors @ weight).split([end - low for low, end in span])
                low, end = span[rank]
                blank = [gradient.new_empty(end - low, weight.shape[1]) for _ in range(group.size)]
                returned.append(group.exchanging(parts, blank))
            if ctx.needs_input_grad[1]:  # not added to zeros: it is far larger than what it is made of
                turned, given = errors.t(), taken[number]
                of_weight = turned @ given if of_weight is None else of_weight.addmm_(turned, given)
            if of_bias is not None:
                of_bias += errors.sum(0)
        if inputs is not None:
            for span, wait in zip(spans, returned, strict=True):
                inputs[slice(*span[rank])] = torch.stack(wait()).sum(0)
        return inputs, of_weight, of_bias, None


def _ahead(
    spans: Sequence[Spans], give: Callable[[Spans], Callable[[], list[Tensor]]]
) -> Iterator[tuple[Spans, list[Tensor]]]:
    """Yield each span and what all ranks gave for it; meanwhile what is for the next one travels."""
    coming = give(spans[0])
    for span, after in zip(spans, [*spans[1:], None], strict=True):
        theirs = coming()
        if after is not None:
            coming = give(after)
        yield span, theirs
