"""Units: parameters of neighbouring layers, which are gathered at once and freed at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import torch

from volary.comm.memory.returned import ReturnedMemory
from volary.comm.sums.route import BufferShape
from volary.exchange.gradients.bucket import ParameterGate
from volary.exchange.gradients.plan import LINE_VALUES, in_memory_order, laid_out_as
from volary.sharding.ranges import Range

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

    from volary.sharding.holdings import Holdings

UNIT_BYTES = 2**20  # small neighbours are gathered together up to this: a request costs a round trip
LINE_BYTES = 4 * LINE_VALUES
Piece = tuple[int, int]  # bytes from start to end of a unit's memory


class Unit:
    """Named parameters, and the memory in which they are from now on, wherever their values are.

    number: its place among all units. gate: closed unless somebody reads them. owned: by rank, the pieces that it owns.
    others_bytes: what others own of it. pins: how many uses are under way, during which it is here.
    """

    def __init__(self, number: int, named: Sequence[tuple[str, Parameter]], holdings: Holdings) -> None:
        self.number, self.named = number, named
        first, last = named[0][0], named[-1][0]
        self.gate = ParameterGate(first if first == last else f"{first} .. {last}")
        self.owned: list[list[Piece]] = [[] for _ in range(holdings.mesh.size)]
        starts, at = [], 0
        for name, parameter in named:
            starts.append(at)
            for own, (owner,) in holdings.within(Range(name, 0, parameter.numel())):
                item = parameter.element_size()
                self.owned[owner].append((at + own.start * item, at + own.end * item))
            at += -(-parameter.numel() * parameter.element_size() // LINE_BYTES) * LINE_BYTES
        self._others = [piece for rank, own in enumerate(self.owned) if rank != holdings.rank for piece in own]
        self.others_bytes = sum(end - start for start, end in self._others)
        self._memory = ReturnedMemory(BufferShape(at, torch.uint8, torch.device("cpu")))
        self.state: Literal["absent", "coming", "here"] = "here"
        self.pins = 0
        self._take(starts)

    @property
    def values(self) -> Tensor:
        """All its memory, (bytes,) of uint8."""
        return self._memory.values

    def name_at(self, address: int) -> str:
        """The name of the parameter of which a value is at this address of its memory."""
        return next(name for name, one in reversed(self.named) if one.data_ptr() <= address)

    def free(self) -> None:
        """Return the memory of what others own to the system."""
        self.state = "absent"
        for start, end in self._others:
            self._memory.give_back(start, end)

    @torch.no_grad()
    def _take(self, starts: Sequence[int]) -> None:
        """Let the parameters be in this memory, one after the other; their values, too."""
        for (_, parameter), start in zip(self.named, starts, strict=True):
            own = self.values[start : start + parameter.numel() * parameter.element_size()].view(parameter.dtype)
            in_memory_order(own).copy_(in_memory_order(parameter.detach()))
            parameter.data = laid_out_as(parameter, own)


def units(named: Sequence[tuple[str, Parameter]], holdings: Holdings) -> Iterator[Unit]:
    """Cut parameters, given in the network's order, into units: whole layers, small neighbours together."""
    number, together, size_bytes = 0, list[tuple[str, "Parameter"]](), 0
    for layer in _layers(named):
        own_bytes = sum(one.numel() * one.element_size() for _, one in layer)
        if together and size_bytes + own_bytes > UNIT_BYTES:
            yield Unit(number, together, holdings)
            number, together, size_bytes = number + 1, [], 0
        together, size_bytes = [*together, *layer], size_bytes + own_bytes
    if together:
        yield Unit(number, together, holdings)


def _layers(named: Sequence[tuple[str, Parameter]]) -> Iterator[list[tuple[str, Parameter]]]:
    layer: list[tuple[str, Parameter]] = []
    for name, parameter in named:
        if layer and layer[0][0].rpartition(".")[0] != name.rpartition(".")[0]:
            yield layer
            layer = []
        layer.append((name, parameter))
    yield from [layer] if layer else []
