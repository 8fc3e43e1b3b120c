"""Links over the group's mesh: small messages take the least CPU time this way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import distributed

from volary.comm.groups import gloo, mesh
from volary.comm.topology.links import Links, Transfer

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from volary.comm.groups.group import Group


class _Sent:
    def wait(self) -> None:
        pass  # it has left already


class MeshLinks:
    """Links as `volary.comm.topology.links.Links`, for contiguous bytes in this machine's memory. A collective call."""

    def __init__(self, group: Group) -> None:
        self.rank, self.size = group.rank, group.size
        self.sent_bytes = self.received_bytes = 0
        self._mesh = mesh.of(group)

    def send(self, values: Tensor, to: int, tag: int) -> Transfer:
        """Send (n,) of uint8; returns when the kernel has it. Raises PeerLost if the peer went away."""
        self.sent_bytes += values.numel()
        self._mesh.send(values.numpy().data, to, tag)
        return _Sent()

    def receive(self, values: Tensor, source: int, tag: int) -> Transfer:
        """Begin to receive into (n,) of uint8; of a source and tag in the order of being sent."""
        self.received_bytes += values.numel()
        return self._mesh.receive(values.numpy().data, source, tag)


def for_small_messages(group: Group, device: torch.device) -> Links | MeshLinks:
    """Links between tensors of `device`: the group's mesh, where it would be gloo otherwise. A collective call."""
    over_gloo = (
        group.size > 1 and device.type == "cpu" and distributed.get_backend(group=group.process_group) == gloo.BACKEND
    )
    return MeshLinks(group) if over_gloo else Links(group)
