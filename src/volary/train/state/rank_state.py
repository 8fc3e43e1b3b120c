"""Each rank's own state in a checkpoint: random generators, buffers, residuals of its codecs, what it updates with."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from volary.naming import named_parameters
from volary.sharding.groups import heir
from volary.train.state.state_file import StateContent, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from torch import nn

    from volary.run.checkpoints import Manifest
    from volary.sharding.holdings import Holdings
    from volary.train.state.held import Savable
    from volary.train.state.stateful import CheckpointParts, RankState, Stateful

RESIDUALS = "owed"  # of the codecs: their name in the file since its first version
OPTIMIZER = "optimizer"  # where each worker has its own
PARAMETERS = "parameters"  # likewise
PRECISION = "precision"  # likewise: the loss scale; where all have one, its name among what they have alike
STREAMS = "streams"  # what the network keeps from batch to batch, of which any rank may need any other's
HELD = "held"  # the parts of the network that all its own state is of
_FILE = re.compile(r"rank-(\d{1,9})\.pt")


class PerWorkerState:
    """The `name` of each worker, as an optimiser or a loss scale; see `Stateful` and `RankState`.

    A worker that a resumed run has more than before begins with rank 0's.
    """

    def __init__(self, name: str, part: Stateful) -> None:
        self._name, self._part, self._own = name, part, False

    def state(self) -> Any:
        return self._part.state()

    def restore(self, state: Any) -> None:
        """Go on from rank 0's, unless there was one of this worker's own."""
        if not self._own:
            self._part.restore(state)

    def rank_state(self) -> dict[str, Any]:
        """This worker's, as of now: servers keep it while training goes on."""
        return {self._name: deepcopy(self._part.state())}

    def restore_rank(self, states: Sequence[dict[str, Any]]) -> None:
        """Go on from this worker's own, if there is one; those of workers that are gone end with them."""
        if states:
            self._own = True
            self._part.restore(states[0][self._name])


class FirstModel:
    """The `name` of a loop's one model, as its checkpoints have it: the first of a list; see `RankState`."""

    def __init__(self, name: str, part: RankState) -> None:
        self._name, self._part = name, part

    def rank_state(self) -> list[dict[str, Any]]:
        return [{self._name: self._part.rank_state()}]

    def restore_rank(self, states: Sequence[list[dict[str, Any]]]) -> None:
        self._part.restore_rank([models[0][self._name] for models in states if models and self._name in models[0]])


def held(module: nn.Module, holdings: Holdings, *, locally: bool = False) -> list[Any]:
    """Describe what a rank holds of the network, in plain values; empty if what it exchanges is of whole tensors.

    locally: it updates what it holds by itself, or what it keeps with its group, and exchanges that.
    """
    if locally and holdings.in_shares:
        return [[name, list(map(list, one.spans))] for name, one in holdings.shares.items()]
    if not holdings.apart or (holdings.mesh.hybrid > 1 and not locally):
        return []
    cut = {name: [one.dim, list(map(list, one.spans))] for name, one in holdings.blocks.items()}
    return [[name, *cut.get(name, [])] for name, _ in named_parameters(module)]


def rank_file(rank: int) -> str:
    """The file of what is a rank's own."""
    return f"rank-{rank}.pt"


def rank_files(rank: int, parts: CheckpointParts, *, first: bool) -> Iterator[tuple[str, Savable]]:
    """The files of a checkpoint that a rank writes, by name. first: it writes what all ranks have alike, too."""
    yield rank_file(rank), StateContent(parts.own())
    yield from parts.kept()
    if first:
        yield from parts.alike()


def is_of_rank(name: str) -> bool:
    """Whether a file is a rank's own."""
    return _FILE.fullmatch(name) is not None


def rank_states(folder: Path, manifest: Manifest, rank: int, world_size: int) -> list[dict[str, Any]]:
    """Return this rank's state in the checkpoint in `folder`, {} if it has none; then the states of those ranks that
    the run no longer has, and whose part this one takes over. Raises RunError.
    """
    known = {int(found[1]) for name in manifest.files if (found := _FILE.fullmatch(name))}
    gone = sorted(other for other in known if other != rank and heir(other, world_size) == rank)
    own = [_read(folder, rank)] if rank in known else [{}]
    return own + [_read(folder, other) for other in gone]


def states_of_all(folder: Path, manifest: Manifest, name: str) -> list[dict[str, Any]]:
    """The state called `name` of every rank that has one in the checkpoint in `folder`. Raises RunError."""
    known = [_read(folder, int(found[1])) for file in manifest.files if (found := _FILE.fullmatch(file))]
    return [state[name] for state in known if name in state]


def _read(folder: Path, rank: int) -> dict[str, Any]:
    state: dict[str, Any] = unpacked(folder / rank_file(rank), folder / rank_file(rank))
    return state
