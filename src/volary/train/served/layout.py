"""Cuts a network for servers: buckets, chunks and slices, the same in every process of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING

import torch
from torch import nn

from volary.consistency._base import Push
from volary.errors import SettingError
from volary.exchange.choice.bucketing import plan
from volary.exchange.choice.choices import pushed
from volary.exchange.gradients.plan import BucketPlan, row_values, values_in
from volary.exchange.representations import representation_in
from volary.exchange.representations.exact import EXACT
from volary.naming import named_buffers, trained_parameters
from volary.server.protocol.slices import Slice, cut
from volary.sharding.ranges import Range
from volary.train.model import of_vectors, update_rule
from volary.train.state.weights import block_name, weights_of

if TYPE_CHECKING:
    from torch import Tensor

    from volary.exchange.representations._base import Representation
    from volary.session.spec import Strategy
    from volary.sharding.blocks import TensorBlock
    from volary.sharding.holdings import Holdings
    from volary.train.model import Model

WHOLE_MB = 2.0**40  # more than any parameter: none is cut


@dataclass(frozen=True)
class Layout:
    """A network's cuts: what travels together, and who keeps what.

    plans: the buckets of gradients. chunk_mb: the size of cuts of large parameters. tensors: trained parameters,
    bucket by bucket, then buffers. buffers: their names; they have a rule of their own. chunks: of all buckets, one
    after the other, then of buffers. representations: of each chunk, when it is pushed. slices: for the servers.
    blocks: those of the tensors that are blocks of another one, by name. owners: of each chunk the one that exchanges
    it with servers, of the ranks that hold a replica.
    """

    plans: list[BucketPlan]
    chunk_mb: float
    tensors: dict[str, Tensor]
    buffers: frozenset[str]
    chunks: list[tuple[Range, ...]]
    representations: list[Representation]
    slices: list[Slice]
    servers: int
    blocks: Mapping[str, TensorBlock] = field(default_factory=dict)
    owners: Sequence[int] = ()

    def of_rank(self, rank: int, module: nn.Module) -> Layout:
        """The values that one rank of a replica held by several exchanges with servers. module: its part of it."""
        chunks = [number for number, owner in enumerate(self.owners) if owner == rank]
        known = {chunk: number for number, chunk in enumerate(chunks)}
        own = {part.name for chunk in chunks for part in self.chunks[chunk]}
        named = {name: one.name for name, one in self.blocks.items()}
        parameters, buffers = trained_parameters(module), dict(named_buffers(module))
        tensors = {**parameters, **buffers}
        return replace(
            self,
            plans=[
                replace(plan, parameters=[(name, parameters[named.get(name, name)]) for name, _ in plan.parameters])
                for plan in self.plans
                if plan.parameters[0][0] in own
            ],
            tensors={name: tensors[named.get(name, name)] for name in self.tensors if name in own},
            buffers=self.buffers & own,
            chunks=[self.chunks[chunk] for chunk in chunks],
            representations=[self.representations[chunk] for chunk in chunks],
            slices=[replace(one, chunk=known[one.chunk]) for one in self.slices if one.chunk in known],
            owners=[rank] * len(chunks),
        )

    def called(self, name: str) -> str:
        """The name in the network of one of the tensors, or of that which it is a block of."""
        return self.blocks[name].name if name in self.blocks else name

    def kept_by(self, server: int, copies: int) -> list[Slice]:
        """The slices that a server keeps: its own, and those that it has a copy of. copies: of each slice."""
        shards = {server, (server - 1) % self.servers} if copies > 1 else {server}
        return [one for one in self.slices if one.shard in shards]

    def columns(self, part: Range) -> int:
        """Values of a row of the parameter that a part is of."""
        return row_values(self.tensors[part.name])

    def values(self, part: Range) -> Tensor:
        """The network's own values of a part, (size,); a view."""
        return values_in(part, self.tensors[part.name])

    def trained(self, part: Range, *, whole: bool) -> Tensor:
        """An optimiser's tensor of a part, (size,). whole: the part is all of a parameter, and keeps its shape."""
        return self.tensors[part.name].detach() if whole else self.values(part)

    @property
    def buffer_chunks(self) -> list[int]:
        """The chunks that are of buffers: those after all chunks of gradients."""
        return [number for number, chunk in enumerate(self.chunks) if chunk[0].name in self.buffers]

    def is_of_buffers(self, one: Slice) -> bool:
        """Whether a slice is of buffers."""
        return one.parts[0].name in self.buffers


def lay_out(model: Model, held: Holdings | None = None) -> Layout:
    """Cut a session's network for its servers. held: as of `cut_network`.

    Raises SettingError as `cut_network`, and for an update rule that servers cannot do.
    """
    session = model.session
    build, elementwise = update_rule(session, model.factors)
    vectors = of_vectors(session.optimizer)
    if not vectors and isinstance(build([""])([torch.zeros(1)]), torch.optim.LBFGS):
        raise SettingError("optimizer LBFGS evaluates the loss several times a step; accepted with servers: any other")
    # under autocast no layer hands over factors, nor does a part of one
    samples = session.data.batch_size if session.train.precision == "fp32" and held is None else 0
    return cut_network(session.strategy, model.module, samples, elementwise=elementwise or vectors, held=held)


def cut_network(
    strategy: Strategy, module: nn.Module, batch_size: int, *, elementwise: bool, held: Holdings | None = None
) -> Layout:
    """Cut a network, which is here whole, for the servers of a strategy.

    batch_size: samples of a global batch, 0 if none of its gradients may travel as factors. elementwise: the update
    rule may be given parts of a parameter. held: what the ranks hold that hold a replica together; None: each has all.
    Raises SettingError for a tensor that does not lie densely in memory, and for blocks if the rule is not elementwise.
    """
    if held is not None and held.cut and not elementwise:
        raise SettingError(
            "optimizer: nothing says that it updates each value on its own, and workers have parts of layers; "
            "accepted: one such as adam, or partition=data"
        )
    chunk_mb = strategy.bucket_mb if elementwise else WHOLE_MB
    servers, samples = strategy.servers, -(-batch_size // strategy.workers) * strategy.consistency.steps()
    gradients = samples if strategy.consistency.pushes is Push.GRADIENT else 0
    chosen = pushed(strategy.codec, module, gradients, servers)
    trained, blocks = _trained(module, held)
    plans: list[BucketPlan] = []
    owned: list[tuple[int, tuple[Range, ...], Representation]] = []
    for owner, named in trained.items():
        travels = {name: chosen[one] for name, _ in named if (one := _of(name, blocks)) in chosen}
        own = plan(named, strategy.bucket_mb, travels)
        plans += own
        owned += [(owner, piece.parts, representation_in(one)) for one in own for piece in one.cuts(chunk_mb)]
    buffers = kept_buffers(module)
    tensors = dict[str, torch.Tensor]([*(pair for one in plans for pair in one.parameters), *buffers])
    _require_dense(tensors)
    owners = {} if held is None else held.buffers
    for owner, group in groupby(buffers, key=lambda pair: owners.get(pair[0], (0,))[0]):
        owned += [(owner, chunk, EXACT) for chunk in _buffer_chunks(list(group))]
    chunks, representations = [chunk for _, chunk, _ in owned], [representation for *_, representation in owned]
    slices = cut(chunks, _rows(chunks, representations, tensors), servers, whole=not elementwise)
    names = frozenset(name for name, _ in buffers)
    return Layout(
        plans,
        chunk_mb,
        tensors,
        names,
        chunks,
        representations,
        slices,
        servers,
        blocks,
        [owner for owner, *_ in owned],
    )


def _of(name: str, blocks: Mapping[str, TensorBlock]) -> str:
    return blocks[name].name if name in blocks else name


def _trained(
    module: nn.Module, held: Holdings | None
) -> tuple[dict[int, list[tuple[str, nn.Parameter]]], dict[str, TensorBlock]]:
    """By the rank of a replica that exchanges them: the trained parameters, in the network's order, or blocks of them,
    without values; and these blocks, by name.
    """
    named = list(trained_parameters(module).items())
    if held is None:
        return {0: named}, {}
    found: dict[int, list[tuple[str, nn.Parameter]]] = {rank: [] for rank in range(held.mesh.size)}
    owners = {part.name: ranks[0] for part, ranks in held.keepers.items()}
    blocks: dict[str, TensorBlock] = {}
    for name, parameter in named:
        if name in owners:
            found[owners[name]].append((name, parameter))
        for block, ranks in held.cut.items():
            if block.name == name and block.size:  # of a branch that others have a worker has nothing
                blocks[block_name(block)] = block
                found[ranks[0]].append((block_name(block), nn.Parameter(parameter.new_empty(block.own_shape))))
    return {rank: one for rank, one in found.items() if one}, blocks


def kept_buffers(module: nn.Module) -> list[tuple[str, Tensor]]:
    """The buffers that contributions carry: those that are saved with the network, as layers may change them.

    What is not of floats and does not lie densely, as an index that is expanded, stays as it is.
    """
    saved = weights_of(module)
    named = [(name, one) for name, one in named_buffers(module) if name in saved]
    return [(name, one) for name, one in named if one.is_floating_point() or _is_dense(one)]


def _buffer_chunks(buffers: Sequence[tuple[str, Tensor]]) -> Iterator[tuple[Range, ...]]:
    for _, group in groupby(buffers, key=lambda pair: pair[1].dtype):
        yield tuple(Range(name, 0, one.numel()) for name, one in group)


def _rows(
    chunks: Sequence[Sequence[Range]], representations: Sequence[Representation], tensors: Mapping[str, Tensor]
) -> Mapping[str, int]:
    """Values of a row of what must not be cut inside one."""
    return {
        part.name: row_values(tensors[part.name])
        for chunk, representation in zip(chunks, representations, strict=True)
        for part in chunk
        if representation.whole_rows
    }


def _require_dense(tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if not _is_dense(tensor):
            raise SettingError(
                f"{name} does not lie densely in memory, and servers keep runs of memory; accepted: a contiguous one, "
                "or exchange=allreduce"
            )


def _is_dense(tensor: Tensor) -> bool:
    return torch.empty_like(tensor, device="meta").stride() == tensor.stride()
