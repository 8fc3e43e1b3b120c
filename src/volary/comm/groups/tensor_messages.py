"""Tensors from one rank of a group to another, with their type and shape: who receives need not know what comes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from volary.comm.groups import mesh
from volary.errors import BadInput, RanksDiffer
from volary.run.database.traffic import Traffic

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.channels.channel import Payload
    from volary.comm.groups.group import Group

MOST_DIMENSIONS = 12
PIECE_BYTES = 2**28  # of a tensor that travel in one message: below what a mesh takes before it is awaited
MOST_BYTES = 2**40
_HEAD = struct.Struct(f"<3B5x{MOST_DIMENSIONS}q")  # what it is about, the type, how many sizes, the sizes
_TYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16),
    *(torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128),
)


class TensorMessages:
    """This rank's messages to and from the others of a group. Making it is a collective call.

    device: where tensors that come are put. They travel through this machine's memory, encrypted, over connections that
    `volary.comm.groups.mesh` makes for the group: who sends never waits for who receives. Used from one thread at a
    time. sent_bytes and received_bytes: since the start.
    """

    def __init__(self, group: Group, device: torch.device) -> None:
        self.group, self.rank, self.size, self.device = group, group.rank, group.size, device
        self.sent_bytes = self.received_bytes = 0
        self._mesh = mesh.of(group) if group.size > 1 else None

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        """The bytes so far, as they are counted by codec and route."""
        plain_bytes = self.sent_bytes + self.received_bytes
        return (Traffic("none", "between stages", self.sent_bytes, self.received_bytes, plain_bytes),)

    def __deepcopy__(self, memo: dict[int, Any]) -> TensorMessages:
        """Copies of a layer use the same connections."""
        return self

    def send(self, values: Tensor, to: int, tag: int, about: int = 0) -> None:
        """Send `values`, of any shape, which may change again at once. about: a byte that comes with them.

        Raises PeerLost, and BadInput for a type that does not travel.
        """
        if values.dtype not in _TYPES or values.dim() > MOST_DIMENSIONS:
            raise BadInput(
                f"a tensor of {values.dtype} and {values.dim()} dimensions does not travel; accepted: at most "
                f"{MOST_DIMENSIONS} dimensions, and {', '.join(str(kind).partition('.')[2] for kind in _TYPES)}"
            )
        sizes = [*values.shape, *[0] * (MOST_DIMENSIONS - values.dim())]
        head = _HEAD.pack(about, _TYPES.index(values.dtype), values.dim(), *sizes)
        whole = values.detach().cpu().contiguous()
        mine = self._peers
        mine.send(memoryview(head), to, tag)
        for piece in _pieces(whole):
            mine.send(piece, to, tag)
        self.sent_bytes += len(head) + whole.nbytes

    def receive(self, source: int, tag: int) -> tuple[Tensor, int]:
        """Return the next tensor from `source` with this tag, and what it is about.

        Tensors of a source and tag come in the order of being sent. Raises PeerLost, and RanksDiffer for what is none.
        """
        head = memoryview(bytearray(_HEAD.size))
        self._peers.receive(head, source, tag).wait()
        about, kind, dimensions, *sizes = _HEAD.unpack(head)
        fits = kind < len(_TYPES) and dimensions <= MOST_DIMENSIONS and min(sizes) >= 0
        shape = sizes[:dimensions]
        if not fits or prod(shape) * _TYPES[kind].itemsize > MOST_BYTES:
            raise RanksDiffer(f"worker {source} sent something that is no tensor; accepted: the same code on all")
        values = torch.empty(shape, dtype=_TYPES[kind])
        for message in [self._peers.receive(piece, source, tag) for piece in _pieces(values)]:
            message.wait()
        self.received_bytes += len(head) + values.nbytes
        return values.to(self.device), about

    @property
    def _peers(self) -> mesh.Mesh:
        assert self._mesh is not None, "a rank alone has nobody to send to"
        return self._mesh


def _pieces(values: Tensor) -> Iterator[Payload]:
    """The memory of contiguous `values`, in pieces of PIECE_BYTES."""
    if values.numel():
        memory = values.view(-1).view(torch.uint8).numpy().data
        for start in range(0, len(memory), PIECE_BYTES):
            yield memory[start : start + PIECE_BYTES]
