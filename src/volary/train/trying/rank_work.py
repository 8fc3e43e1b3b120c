"""The work of a worker in a step, counted from the network's layers: nothing is timed, so it is the same everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from volary.naming import named_modules, named_parameters
from volary.partition.pipelining.plan import MOVED_BYTES_PER_S, OPERATIONS_PER_S

if TYPE_CHECKING:
    from torch import nn

    from volary.partition._base import Part
    from volary.session.spec import Session

PASSES = 3  # forward passes that a forward and a backward one take as long as
ADDED = 3  # of a sum of gradients: it is read, with what is added, and written
COPIED = 2  # of a gradient that is copied to where updates find it: it is read and written
VALUE_BYTES = 4


@dataclass(frozen=True)
class RankWork:
    """layers_s: of the passes through each layer, by name. parameters_s: of reading parameters in them, and adding up
    or copying their gradients. update_s: of the update. exchanged_bytes: sent for gradients, and for copies of shares.
    activations: of how many samples all are held at once.
    """

    layers_s: Mapping[str, float]
    parameters_s: float
    update_s: float
    exchanged_bytes: float
    activations: float

    @property
    def computing_s(self) -> float:
        """The passes and the update together."""
        return sum(self.layers_s.values()) + self.parameters_s + self.update_s


def passes_s(row: Mapping[str, Any], samples: float) -> float:
    """Seconds of a forward and a backward pass through a layer, a row of `layer_graph`."""
    moved_bytes = VALUE_BYTES * prod(row["shape"])
    seconds: float = PASSES * samples * (row["operations"] / OPERATIONS_PER_S + moved_bytes / MOVED_BYTES_PER_S)
    return seconds


def work_of(session: Session, module: nn.Module, part: Part, graph: Mapping[str, Any]) -> RankWork:
    """The work of the worker with this part of the session's network. graph: as `layer_graph` has it."""
    holdings, mesh, named = part.holdings, part.holdings.mesh, dict(named_parameters(module))
    layers_s, activations = _passes(session, module, part, graph)
    owners = {block.name: len(ranks) for block, ranks in holdings.cut.items()}
    trained = {name: one for name, one in named.items() if one.requires_grad}
    held = {name: one.element_size() * holdings.computes_with(name, one.numel()) for name, one in trained.items()}
    many = {name: owners.get(name, mesh.shares) for name in trained}
    # once around a ring with gradients, and once with sums or parameters; which are gathered again where they are freed
    around = 3 if part.scattered is not None else 2
    kept_bytes = sum(one.nbytes for one in trained.values()) * holdings.kept_share
    # gradients are read, and parameters and what the optimiser keeps read and written
    update_bytes = (3 + 2 * getattr(session.optimizer, "kept", 0)) * kept_bytes
    pieces = session.train.accumulate * part.pieces
    # whole layers write where gradients travel from
    copied = sum(held[name] for name in held if name in owners) if mesh.shares > 1 else 0
    # its share of parameters and of the optimiser's state goes to the worker that has the copy
    posted_bytes = (1 + getattr(session.optimizer, "kept", 0)) * kept_bytes if session.strategy.posts_shares else 0
    return RankWork(
        layers_s=layers_s,
        parameters_s=((PASSES * pieces + ADDED * (pieces - 1)) * sum(held.values()) + COPIED * copied)
        / MOVED_BYTES_PER_S,
        update_s=update_bytes / MOVED_BYTES_PER_S,
        exchanged_bytes=posted_bytes
        + sum(around * (many[name] - 1) / many[name] * size for name, size in held.items()),
        activations=activations,
    )


def _passes(
    session: Session, module: nn.Module, part: Part, graph: Mapping[str, Any]
) -> tuple[Mapping[str, float], float]:
    """Seconds by layer, and of how many samples the activations of all layers are held at once, at most.

    Of a layer that is cut a worker computes its block, for all samples of its replica.
    """
    mesh, batch, shares = part.holdings.mesh, session.data.batch_size, _shares(module, part)
    values = {row["name"]: prod(row["shape"]) for row in graph["layers"]}
    found, held, here = dict[str, float](), 0.0, 1.0
    for row in graph["layers"]:
        share, samples = shares.get(row["name"]), batch / mesh.shares
        if mesh.pipeline > 1:  # a layer without parameters is where the one before it is
            here = here if share is None else share
            found[row["name"]] = here * passes_s(row, samples)
            held += here * samples * values[row["name"]]
            continue
        if share is not None and share < 1:
            samples = batch / (mesh.data * mesh.shard)
        found[row["name"]] = (1.0 if share is None else share) * passes_s(row, samples)
        held += samples * values[row["name"]]
    return found, part.alive * held / max(1, sum(values.values())) / session.train.accumulate


def _shares(module: nn.Module, part: Part) -> Mapping[str, float]:
    """By layer with parameters, the share of them that the worker computes with."""
    named = dict(named_parameters(module))
    names, found = {id(one): name for name, one in named.items()}, dict[str, float]()
    for layer, one in named_modules(module):
        own = [names[id(parameter)] for parameter in one.parameters() if id(parameter) in names]
        whole = sum(named[name].numel() for name in own)
        if whole:
            found[layer] = sum(part.holdings.computes_with(name, named[name].numel()) for name in own) / whole
    return found
