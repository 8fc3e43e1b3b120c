"""Checkpoints that cross over: ranks that keep all themselves wrote them and servers go on from them, or the other way.

How far a run is, all write in the same words (`ROSTER`). Weights and what the optimiser remembers are turned from the
one form into the other where they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from volary.exchange._plan import in_memory_order, laid_out_as
from volary.run.best import Best
from volary.run.checkpoints import ROSTER, read
from volary.server.portions import Left, Plan
from volary.server.roster import State
from volary.train.pieces import COUNTER
from volary.train.served.shards import Shards, is_served
from volary.train.state_file import unpacked
from volary.train.weights import SHARED, WEIGHTS, load_weights

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor, nn
    from torch.optim import Optimizer

    from volary.data.feed import Feed
    from volary.run.checkpoints import Manifest
    from volary.train.update import Update


def roster_state(step: int, shared: Mapping[str, Any]) -> State:
    """How far a run is after `step` updates, as its roster would say it. shared: the state that all ranks hold."""
    feed = shared["feed"]
    epoch, position, samples = feed["epoch"], feed["position"], feed["samples"]
    begun = [(epoch, position, samples)] if position else []
    return State(step, epoch * samples + position, Left(epoch + len(begun), begun), Best(**shared["best"]))


def shards_of(
    path: Path,
    manifest: Manifest,
    module: nn.Module,
    kept: Sequence[tuple[str, Tensor]],
    optimizer: Optimizer,
    elementwise: bool,
) -> Shards:
    """What servers go on from. kept: what they keep of `module`. optimizer: of all trained parameters, as `Update` has.

    The module takes what ranks wrote, in which there may be more than servers keep.
    """
    if is_served(manifest):
        return Shards.read(path, manifest)
    load_weights(module, read(path, manifest, WEIGHTS))
    shared = unpacked(read(path, manifest, SHARED), path / SHARED)
    known = shared["update"]["optimizer"]["state"]
    states = {id(parameter): known.get(number, {}) for number, parameter in _numbered(optimizer)}
    found = Shards()
    for name, one in kept:
        state = {
            key: _flat(entry, one) if elementwise and _is_of_each(key, entry, one.shape) else entry
            for key, entry in states.get(id(one), {}).items()
        }
        found.add(name, 0, in_memory_order(one.detach()), state)
    return found


def shared_of(
    path: Path, manifest: Manifest, module: nn.Module, update: Update, feed: Feed, tell: Callable[[str], None]
) -> dict[str, Any]:
    """What all ranks hold alike, from what servers wrote. tell: what cannot be as it was, in a sentence."""
    shards, names = Shards.read(path, manifest), {id(one): name for name, one in module.named_parameters()}
    states = {}
    for number, one in _numbered(update.optimizer):
        if entries := shards.state(names[id(one)], 0, one.numel()):
            whole = (one.numel(),)
            states[number] = {
                key: laid_out_as(one, entry) if update.elementwise and _is_of_each(key, entry, whole) else entry
                for key, entry in entries.items()
            }
    known = msgspec.json.decode(read(path, manifest, ROSTER), type=State)
    return {
        "update": {"optimizer": update.optimizer.state_dict() | {"state": states}, "precision": {}},
        "feed": _position(known, feed, tell),
        "best": msgspec.to_builtins(known.best),
        "ways": {"ways": {}},
    }


def _position(known: State, feed: Feed, tell: Callable[[str], None]) -> dict[str, int]:
    """A feed's state after as many samples. It has an epoch in its order, which workers of servers may not have."""
    state = feed.state()
    plan = Plan(samples=state["samples"], batch_size=feed.batch_size, limit=known.samples)
    epoch, position = divmod(known.samples, plan.samples)
    ranges = [(start + each * plan.samples, end + each * plan.samples) for each, start, end in known.left.ranges]
    if missed := sum(max(0, min(end, known.samples) - start) for start, end in ranges):
        tell(f"{missed} samples are left out, and as many come twice in an epoch: workers were not equally far")
    return state | {"epoch": epoch, "position": position, "step": plan.steps(known.samples)}


def _numbered(optimizer: Optimizer) -> Iterator[tuple[int, Tensor]]:
    """Parameters with their numbers in the optimiser's state."""
    return enumerate(parameter for group in optimizer.param_groups for parameter in group["params"])


def _is_of_each(key: str, entry: Any, shape: tuple[int, ...]) -> bool:
    """Whether an entry of an elementwise rule's state has something of each value."""
    return key != COUNTER and isinstance(entry, torch.Tensor) and entry.shape == shape


def _flat(entry: Tensor, like: Tensor) -> Tensor:
    """An entry in the order in memory of its parameter."""
    return in_memory_order(torch.empty_like(like, dtype=entry.dtype, requires_grad=False).copy_(entry))
