"""The update rule of servers that do with vectors what the roster says: sums of them, and their inner products."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from volary.errors import RunError
from volary.server.protocol.vectors import GRADIENT, PARAMETERS, Asked, Combine, FoundProducts
from volary.train.state.part_state import AVERAGE, PartState
from volary.train.update.averaging import Averages

if TYPE_CHECKING:
    from torch import Tensor

    from volary.server.update_rule import SliceUpdate
    from volary.sharding.ranges import Range
    from volary.train.state.optimizer_state import OptimizerState
    from volary.train.update.averaging import Averaging

BLOCK_VALUES = 2**16  # that are looked at together, in double precision


@dataclass
class _Part:
    """A part of a slice: the vectors that it has something of, each (size,), by their names."""

    part: Range
    vectors: dict[str, Tensor] = field(default_factory=dict)


class VectorRule:
    """See `volary.server.update_rule.UpdateRule`. slices: by number, their parts. rate: of the update that brings the
    run to so many samples. averaging: of the values, if an average is kept.

    A vector that nobody has made is zero, as is the gradient of a part that nobody used.
    """

    changes_sums = False

    def __init__(
        self,
        slices: Mapping[int, Sequence[Range]],
        rate: Callable[[int], float],
        averaging: Averaging | None,
    ) -> None:
        self._parts = {number: [_Part(part) for part in parts] for number, parts in slices.items()}
        self._averages = {number: Averages() for number in slices}
        self._rate, self._averaging = rate, averaging

    def find(self, number: int, update: SliceUpdate, asked: Asked) -> FoundProducts:
        """The inner products of a slice's vectors, the gradient among them; none of a slice of buffers."""
        if number not in self._parts:
            return FoundProducts()
        rows, columns = len(asked.rows), len(asked.columns)
        products = torch.zeros(rows, columns, dtype=torch.float64)
        magnitudes, largest = torch.zeros(rows, dtype=torch.float64), torch.zeros(rows, dtype=torch.float64)
        for one, total in zip(self._parts[number], update.sums or [None] * len(self._parts[number]), strict=True):
            for span in _blocks(one.part.size):
                own = torch.stack([_block(one, name, total, update.scale, span) for name in asked.rows])
                others = torch.stack([_block(one, name, total, update.scale, span) for name in asked.columns])
                products.addmm_(own, others.t())
                magnitudes += own.abs().sum(1)
                torch.maximum(largest, own.abs().amax(1), out=largest)
        plain = [tuple(one.flatten().tolist()) for one in (products, magnitudes, largest)]
        return FoundProducts(plain[0], plain[1], plain[2], self._rate(update.samples))

    def apply(self, number: int, values: Sequence[Tensor], update: SliceUpdate) -> None:
        """Do the update's commands, one after the other."""
        for one, own, total in zip(self._parts[number], values, update.sums, strict=True):
            for command in update.commands:
                _combine(one, command, own, total, update.scale)
        if self._averaging is not None:
            self._averages[number].take(values, self._averaging, update)

    def state(self, number: int) -> list[PartState]:
        """The vectors of each part."""
        found = []
        for place, one in enumerate(self._parts[number]):
            averages, entered = self._averages[number].state(place, copied=True)
            each = {name: vector.clone() for name, vector in one.vectors.items()}
            found.append(PartState(one.part, each | averages, entered))
        return found

    def restore(self, number: int, state: OptimizerState) -> None:
        """Go on from there, however it was cut. Raises RunError for what a single process remembers."""
        for place, one in enumerate(self._parts[number]):
            known = state.of(one.part)
            entries = {**known.each, **known.whole}
            self._averages[number].restore(place, entries)
            if alien := [name for name, vector in entries.items() if not isinstance(vector, torch.Tensor)]:
                raise RunError(
                    f"the checkpoint has {alien[0]!r} of {one.part.name}, which only workers that keep all vectors can "
                    "go on from; accepted: exchange=allreduce, as before, or a new run"
                )
            one.vectors = {name: vector for name, vector in entries.items() if name != AVERAGE}


def _blocks(size: int) -> Iterator[slice]:
    return (slice(start, min(start + BLOCK_VALUES, size)) for start in range(0, size, BLOCK_VALUES))


def _block(one: _Part, name: str, total: Tensor | None, scale: float, span: slice) -> Tensor:
    """Values of a vector, in double precision. total: of the gradient, before it is scaled."""
    if name == GRADIENT:
        return _nothing(span) if total is None else total.view(-1)[span].to(torch.float64) * scale
    return one.vectors[name][span].to(torch.float64) if name in one.vectors else _nothing(span)


def _nothing(span: slice) -> Tensor:
    return torch.zeros(span.stop - span.start, dtype=torch.float64)


def _combine(one: _Part, command: Combine, own: Tensor, total: Tensor | None, scale: float) -> None:
    if not command.of:
        one.vectors.pop(command.to, None)
        return
    if command.to != PARAMETERS and command.to not in one.vectors:
        one.vectors[command.to] = torch.zeros_like(own)
    out = own if command.to == PARAMETERS else one.vectors[command.to]
    for span in _blocks(one.part.size):
        block = _nothing(span)
        for name, factor in zip(command.of, command.factors, strict=True):
            block.add_(own[span] if name == PARAMETERS else _block(one, name, total, scale, span), alpha=factor)
        out[span] = block
