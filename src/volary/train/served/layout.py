"""Cuts a network for servers: buckets, chunks and slices, the same in every process of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import torch

from volary.consistency._base import Push
from volary.errors import SettingError
from volary.exchange.choice.choices import pushed
from volary.exchange.gradients.plan import BucketPlan, in_memory_order, plan, row_values
from volary.exchange.representations.exact import EXACT
from volary.naming import named_buffers, named_parameters
from volary.server.protocol.slices import Part, Slice, cut
from volary.train.model import update_rule
from volary.train.state.weights import weights_of
from volary.train.update.rule import SlicePart

if TYPE_CHECKING:
    from torch import Tensor, nn

    from volary.exchange.representations._base import Representation
    from volary.session.spec import Session, Strategy

WHOLE_MB = 2.0**40  # more than any parameter: none is cut


@dataclass(frozen=True)
class Layout:
    """What travels together, and who keeps what.

    plans: the buckets of gradients. chunk_mb: at which their large parameters are cut. tensors: by a part's number:
    trained parameters, bucket by bucket, and from `first_buffer` on buffers, which have a rule of their own. chunks: of
    all buckets, one after the other, then of buffers. representations: of each chunk, when it is pushed.
    """

    plans: list[BucketPlan]
    chunk_mb: float
    tensors: list[tuple[str, Tensor]]
    first_buffer: int
    chunks: list[tuple[Part, ...]]
    representations: list[Representation]
    slices: list[Slice]

    def columns(self, part: Part) -> int:
        """Values of a row of the parameter that a part is of."""
        return row_values(self.tensors[part.parameter][1])

    def values(self, part: Part) -> Tensor:
        """The network's own values of a part, (end - start,); a view."""
        return in_memory_order(self.tensors[part.parameter][1].detach())[part.start : part.end]

    def part(self, part: Part, *, whole: bool) -> SlicePart:
        """The network's own values of a part, by name. whole: it is all of a parameter, and keeps its shape."""
        name, tensor = self.tensors[part.parameter]
        if whole:
            return SlicePart(name, part.start, part.end, tensor.detach())
        return SlicePart.of(name, tensor, part.start, part.end)

    @property
    def buffer_chunks(self) -> list[int]:
        """The chunks that are of buffers: those after all chunks of gradients."""
        return [number for number, chunk in enumerate(self.chunks) if chunk[0].parameter >= self.first_buffer]

    def is_of_buffers(self, one: Slice) -> bool:
        """Whether a slice is of buffers."""
        return one.parts[0].parameter >= self.first_buffer


def lay_out(session: Session, module: nn.Module, servers: int) -> Layout:
    """Cut a session's network for so many servers.

    Raises SettingError as `cut_network`, and for an update rule that servers cannot do.
    """
    build, elementwise = update_rule(session)
    if isinstance(build([torch.zeros(1)]), torch.optim.LBFGS):
        raise SettingError("optimizer LBFGS evaluates the loss several times a step; accepted with servers: any other")
    return cut_network(session.strategy, module, session.data.batch_size, servers, elementwise=elementwise)


def cut_network(strategy: Strategy, module: nn.Module, batch_size: int, servers: int, *, elementwise: bool) -> Layout:
    """Cut a network for so many servers.

    batch_size: samples of a global batch. elementwise: the update rule may be given parts of a parameter. Raises
    SettingError for a tensor that does not lie densely in memory.
    """
    trained = [(name, parameter) for name, parameter in named_parameters(module) if parameter.requires_grad]
    chunk_mb = strategy.bucket_mb if elementwise else WHOLE_MB
    samples = -(-batch_size // strategy.workers) * strategy.consistency.steps()
    gradients = samples if strategy.consistency.pushes is Push.GRADIENT else 0
    plans = plan(trained, strategy.bucket_mb, pushed(strategy.codec, module, gradients, servers))
    buffers = kept_buffers(module)
    tensors = [*((name, parameter) for one in plans for name, parameter in one.parameters), *buffers]
    _require_dense(tensors)
    first_buffer = len(tensors) - len(buffers)
    pairs = [*_chunks(plans, chunk_mb), *((part, EXACT) for part in _buffer_chunks(buffers, first_buffer))]
    chunks, representations = [chunk for chunk, _ in pairs], [representation for _, representation in pairs]
    rows = _rows(chunks, representations, [tensor for _, tensor in tensors])
    slices = cut(chunks, rows, servers, whole=not elementwise)
    return Layout(plans, chunk_mb, tensors, first_buffer, chunks, representations, slices)


def kept_buffers(module: nn.Module) -> list[tuple[str, Tensor]]:
    """The buffers that contributions carry: those that are saved with the network, as layers may change them.

    What is not of floats and does not lie densely, as an index that is expanded, stays as it is.
    """
    saved = weights_of(module)
    named = [(name, one) for name, one in named_buffers(module) if name in saved]
    return [(name, one) for name, one in named if one.is_floating_point() or _is_dense(one)]


def _chunks(plans: Sequence[BucketPlan], chunk_mb: float) -> Iterator[tuple[tuple[Part, ...], Representation]]:
    first = 0
    for one in plans:
        for piece in one.cuts(chunk_mb):
            yield tuple(Part(first + part.parameter, part.start, part.end) for part in piece.parts), one.representation
        first += len(one.parameters)


def _buffer_chunks(buffers: Sequence[tuple[str, Tensor]], first: int) -> Iterator[tuple[Part, ...]]:
    numbered = [(first + number, one) for number, (_, one) in enumerate(buffers)]
    for _, group in groupby(numbered, key=lambda pair: pair[1].dtype):
        yield tuple(Part(number, 0, one.numel()) for number, one in group)


def _rows(
    chunks: Sequence[Sequence[Part]], representations: Sequence[Representation], tensors: Sequence[Tensor]
) -> Mapping[int, int]:
    """Values of a row of what must not be cut inside one."""
    return {
        part.parameter: row_values(tensors[part.parameter])
        for chunk, representation in zip(chunks, representations, strict=True)
        for part in chunk
        if representation.whole_rows
    }


def _require_dense(tensors: Sequence[tuple[str, Tensor]]) -> None:
    for name, tensor in tensors:
        if not _is_dense(tensor):
            raise SettingError(
                f"{name} does not lie densely in memory, and servers keep runs of memory; accepted: a contiguous one, "
                "or exchange=allreduce"
            )


def _is_dense(tensor: Tensor) -> bool:
    return torch.empty_like(tensor, device="meta").stride() == tensor.stride()
