"""A worker's copies of one slice: the values that it pulled last, and those that its network computes with."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING

import torch

from volary.comm.control.errors import BadFrame
from volary.exchange.servers.pushed import as_bytes
from volary.server.protocol.header import Form, Header

if TYPE_CHECKING:
    from torch import Tensor

    from volary.codec._base import FrameCodec
    from volary.comm.transports._base import Payload

NEVER = -1  # a version older than all


class PullState(Enum):
    """Of the memory that values are pulled to."""

    READ = 0  # nothing that the network has not
    HERE = 1
    ARRIVING = 2  # or torn, by a connection that broke
    INSTALLING = 3


class Pulled:
    """One slice. network: the network's own values of each part, flat. Its owner guards `state` and the versions.

    version: of what is here. installed: of what the network has. in_use: the network has read it since the last
    backward, so that it must stay what it is: a slice may hold values of several parameters. codec: of differences to
    what is here, if such come.
    """

    def __init__(self, network: Sequence[Tensor], codec: FrameCodec | None) -> None:
        self._network, self._codec = network, codec
        self.values = torch.empty(sum(part.numel() for part in network), dtype=network[0].dtype)
        self._payload = as_bytes(self.values)
        frame_bytes = codec.frame_bytes(1, self.values.numel()) if codec is not None else 0
        self._frame = torch.empty(frame_bytes, dtype=torch.uint8)
        self._frame_payload = as_bytes(self._frame)
        self.state = PullState.READ
        self.version = self.installed = NEVER
        self.in_use = False

    @property
    def value_bytes(self) -> int:
        """Bytes of the slice's values as they are, not encoded."""
        return len(self._payload)

    @property
    def codec(self) -> str:
        return self._codec.name if self._codec is not None else "none"

    def room(self, header: Header) -> Payload:
        """Where its values, or their difference, are to be received. Raises BadFrame if neither would fit."""
        room = self._frame_payload if header.form is Form.DIFFERENCE else self._payload
        if header.form not in (Form.EXACT, Form.DIFFERENCE) or len(room) != header.length:
            raise BadFrame(f"{header.length} bytes came for a slice of {len(room)}")
        return room

    def take(self, header: Header, payload: Payload) -> None:
        """Read what came, if it lies elsewhere, and add differences."""
        room = self.room(header)
        if payload is not room:
            _tensor(room).copy_(_tensor(payload))
        if header.form is Form.DIFFERENCE:
            assert self._codec is not None
            self._codec.add(self._frame, self.values.view(1, -1))

    def install(self, values: Tensor | None = None) -> None:
        """Let the network have what is here, or other `values` (size,)."""
        source = self.values if values is None else values
        at = 0
        for own in self._network:
            own.copy_(source[at : at + own.numel()])
            at += own.numel()

    def taken_from_network(self) -> Tensor:
        """A copy of what the network has, (size,)."""
        return torch.cat([part.flatten() for part in self._network]).to(self.values.device)


def _tensor(payload: Payload) -> Tensor:
    return torch.frombuffer(payload, dtype=torch.uint8)
