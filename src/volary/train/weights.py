"""The network's weights in a checkpoint, whoever wrote it: its first worker, or servers, each some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from volary.errors import RunError
from volary.run.checkpoints import Manifest, read
from volary.train.served.shards import Shards, is_served

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor, nn

WEIGHTS = "model.safetensors"
SHARED = "state.pt"  # beside it: what all ranks hold alike


def saved_weights(path: Path, manifest: Manifest) -> bytes:
    """Parameters and buffers of the checkpoint in the folder `path`, as a safetensors file. Raises RunError."""
    if not is_served(manifest):
        return read(path, manifest, WEIGHTS)
    whole = Shards.read(path, manifest).whole()
    return save({name: one.contiguous() for name, one in whole.items()})


def load_buffers(module: nn.Module, data: bytes) -> None:
    """Set the module's buffers, of those that are saved with a network."""
    tensors = _loaded(data)
    for name, buffer in module.named_buffers():
        if name in tensors:
            buffer.copy_(tensors[name])


def load_weights(module: nn.Module, data: bytes) -> None:
    """Set the module's parameters and buffers. Raises RunError, naming the first tensor that does not fit."""
    tensors = _loaded(data)
    own = weights_of(module)
    for name, tensor in own.items():
        if name not in tensors or tensors[name].shape != tensor.shape:
            found = tuple(tensors[name].shape) if name in tensors else "missing"
            raise RunError(f"the checkpoint's {name} is {found}; the network's is {tuple(tensor.shape)}")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def _loaded(data: bytes) -> dict[str, Tensor]:
    try:
        return load(data)
    except SafetensorError as error:
        raise RunError(f"the checkpoint's weights are no safetensors file: {error}") from None


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name; one that is shared stands once, under its first name."""
    fleeting = {
        f"{prefix}.{name}".lstrip(".")
        for prefix, part in module.named_modules()
        for name in part._non_persistent_buffers_set
    }
    named = [*module.named_parameters(), *module.named_buffers()]
    return {name: tensor.detach() for name, tensor in named if name not in fleeting}
