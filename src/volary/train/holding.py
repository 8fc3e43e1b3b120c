"""Says in words how much each worker of a session holds, and passes to others in a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from volary.naming import named_parameters, trained_parameters
from volary.network.layer_graph import INPUT
from volary.partition._base import LayerUse

if TYPE_CHECKING:
    from torch import nn

    from volary.session.spec import Session


def held_by_workers(
    session: Session, module: nn.Module, graph: dict[str, Any] | None, activations: Sequence[int | None]
) -> list[str]:
    """A sentence for each worker whose part of the network differs from that of the one before, if layers are cut.

    graph: of the network, as `layer_graph` has it; None: what passes between parts of layers is not known. activations:
    bytes by worker, of those that are known.
    """
    workers, lines = session.strategy.workers, list[str]()
    if not session.strategy.partition.part(module, 0, workers).holdings.apart:
        return []
    known = [*activations, *[None] * (workers - len(activations))]
    found = [_of_worker(session, module, rank, graph, known[rank]) for rank in range(workers)]
    first = 0
    for rank in range(1, workers + 1):
        if rank == workers or found[rank] != found[first]:
            named = f"worker {first}" if rank - first == 1 else f"workers {first} to {rank - 1}, each"
            lines.append(f"{named}: {found[first]}")
            first = rank
    return lines


def _of_worker(
    session: Session, module: nn.Module, rank: int, graph: dict[str, Any] | None, activations: int | None
) -> str:
    part = session.strategy.partition.part(module, rank, session.strategy.workers)
    named = dict(named_parameters(module))
    sizes = {name: part.holdings.computes_with(name, one.numel()) * one.element_size() for name, one in named.items()}
    trained = sum(sizes[name] for name in trained_parameters(module))
    whole = sum(one.nbytes for one in module.parameters() if one.requires_grad)
    kept = getattr(session.optimizer, "kept", 0) * whole * part.holdings.kept_share
    text = (
        f"{_mb(sum(sizes.values()))} of parameters, {_mb(trained)} of gradients, {_mb(kept)} of the optimiser's state"
    )
    if activations is not None:
        text += f", {_mb(activations)} of activations"
    if graph is None:
        return text
    passed = part.passes_bytes(layer_uses(graph), session.data.batch_size)
    return f"{text}; passes {_mb(passed)} to others in a step, between parts of layers" if passed else text


def layer_uses(graph: dict[str, Any]) -> Mapping[str, LayerUse]:
    """By layer how a forward uses it. graph: as `layer_graph` has it."""
    return {
        row["name"]: LayerUse(prod(row["shape"]), needs_gradient=row["inputs"] != [INPUT]) for row in graph["layers"]
    }


def _mb(count: float) -> str:
    return f"{count / 1e6:.3g} MB"
