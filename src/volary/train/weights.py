"""The network's weights in a checkpoint, whoever wrote it: its first worker, or servers, each some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safetensors.torch import save

from volary.run.checkpoints import Manifest, read
from volary.train.checkpoint import WEIGHTS
from volary.train.served.shards import Shards, is_served

if TYPE_CHECKING:
    from pathlib import Path


def saved_weights(path: Path, manifest: Manifest) -> bytes:
    """Parameters and buffers of the checkpoint in the folder `path`, as a safetensors file. Raises RunError."""
    if not is_served(manifest):
        return read(path, manifest, WEIGHTS)
    whole = Shards.read(path, manifest).whole()
    return save({name: one.contiguous() for name, one in whole.items()})
