"""Each rank's own state in a checkpoint: random generators, buffers, residuals of its codecs, what it updates with."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from volary.train.state.state_file import unpacked

if TYPE_CHECKING:
    from pathlib import Path

    from volary.run.checkpoints import Manifest

RESIDUALS = "owed"  # of the codecs: their name in the file since its first version
OPTIMIZER = "optimizer"  # where each worker has its own
PARAMETERS = "parameters"  # likewise
PRECISION = "precision"  # likewise: the loss scale; where all have one, its name among what they have alike
_FILE = re.compile(r"rank-(\d{1,9})\.pt")


def rank_file(rank: int) -> str:
    """The file of what is a rank's own."""
    return f"rank-{rank}.pt"


def is_of_rank(name: str) -> bool:
    """Whether a file is a rank's own."""
    return _FILE.fullmatch(name) is not None


def rank_states(folder: Path, manifest: Manifest, rank: int, world_size: int) -> list[dict[str, Any]]:
    """What this rank has in the checkpoint in `folder`, {} if it has nothing; then what those ranks had for which the
    run has no worker any more, and whose part this one takes over. Raises RunError.
    """
    known = {int(found[1]) for name in manifest.files if (found := _FILE.fullmatch(name))}
    gone = sorted(other for other in known if other != rank and other % world_size == rank)
    own = [_read(folder, rank)] if rank in known else [{}]
    return own + [_read(folder, other) for other in gone]


def _read(folder: Path, rank: int) -> dict[str, Any]:
    state: dict[str, Any] = unpacked(folder / rank_file(rank), folder / rank_file(rank))
    return state
