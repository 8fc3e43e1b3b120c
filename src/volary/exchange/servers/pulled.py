"""A worker's copies of one slice: the values that it pulled last, and those that its network computes with.

See `volary.server.client.values.PulledValues`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING

import torch

from volary.comm.control.errors import BadFrame
from volary.exchange.servers.pushed import as_bytes
from volary.server.client.values import copy
from volary.server.protocol.header import Form, Header

if TYPE_CHECKING:
    from torch import Tensor

    from volary.codec._base import FrameCodec
    from volary.comm.channels.channel import Payload

NEVER = -1  # a version older than all


class PullState(Enum):
    """The state of the memory that values are pulled to."""

    READ = 0  # nothing that the network has not
    HERE = 1
    ARRIVING = 2  # or torn, by a connection that broke


class Pulled:
    """One slice. network: the network's own values of each part, flat. For a thread that receives and one that reads.

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
        self._lock = threading.Lock()  # held while values are copied to the network: until then nothing comes over them
        self._state = PullState.READ
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
        """Memory for values as they are, or their difference. Raises BadFrame if neither would fit."""
        room = self._room(header)
        if header.form is Form.EXACT:
            self._arrive()
        return room

    def take(self, header: Header, payload: Payload) -> None:
        """Read what came, if it lies elsewhere, and add differences. Raises BadFrame as `room`."""
        self._arrive()
        copy(payload, self._room(header))
        if header.form is Form.DIFFERENCE:
            assert self._codec is not None
            self._codec.add(self._frame, self.values.view(1, -1))
        self.version = header.version
        self._state = PullState.HERE  # last: from now on it may be read

    def is_new_enough(self, version: int) -> bool:
        """Whether the network has this version or a newer one, or could have it at once."""
        return self.installed >= version or (self._state is PullState.HERE and self.version >= version)

    def read(self, version: int) -> bool:
        """Let the network have the newest that is here, if it may change. False: that is older than `version`."""
        with self._lock:
            if self._state is PullState.HERE and (not self.in_use or self.installed < version):
                self.install(self.values)
                self._state, self.installed = PullState.READ, self.version
            if self.installed < version:  # something newer has begun to arrive over what was new enough
                return False
            self.in_use = True
            return True

    def install(self, values: Tensor) -> None:
        """Let the network have these values, (size,)."""
        at = 0
        for own in self._network:
            own.copy_(values[at : at + own.numel()])
            at += own.numel()

    def taken_from_network(self) -> Tensor:
        """A copy of what the network has, (size,)."""
        return torch.cat([part.flatten() for part in self._network]).to(self.values.device)

    def _arrive(self) -> None:
        with self._lock:
            self._state = PullState.ARRIVING

    def _room(self, header: Header) -> Payload:
        room = self._frame_payload if header.form is Form.DIFFERENCE else self._payload
        if header.form not in (Form.EXACT, Form.DIFFERENCE) or len(room) != header.length:
            raise BadFrame(f"{header.length} bytes came for a slice of {len(room)}")
        return room
