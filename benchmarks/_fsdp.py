"""FSDP2, set as its documentation shows: each layer with parameters is a group, and what is left another."""

from __future__ import annotations

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard


def shard_by_layer(module: nn.Module, mesh: DeviceMesh) -> None:
    """Let ranks keep shares of the parameters of `module`, in place, layer by layer."""
    for layer in module.children():
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
