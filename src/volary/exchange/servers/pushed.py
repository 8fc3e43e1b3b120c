"""A worker's push of one slice: its values where backward left them, or their frames.

See `volary.server.client.values.PushedValues`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from volary.codec._base import Encoded, finite
from volary.errors import NotFinite
from volary.server.protocol.header import ALL_USED, Form, Header

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.channels.channel import Payload
    from volary.exchange.compression.residual import BucketResidual
    from volary.server.protocol.sections import Section


class PlainValues:
    """Values as they are. values: (size,) where they lie; users: of each part, 0 if no backward reached it."""

    form = Form.EXACT
    codec = "none"

    def __init__(self, values: Tensor, users: Tensor | None = None) -> None:
        self._values, self._users = values, users
        on_cpu = values.device.type == "cpu"
        self._there = values if on_cpu else torch.empty(values.shape, dtype=values.dtype)
        self._payload = as_bytes(self._there)

    @property
    def length(self) -> int:
        return len(self._payload)

    def ready(self) -> int:
        if self._there is not self._values:
            self._there.copy_(self._values)
        return bits(self._users)

    def leave(self, header: Header) -> tuple[Header, Payload]:
        return header, self._payload


class EncodedValues:
    """Frames of a codec, made when they leave, in the sending thread; what they leave out is added to their residual.

    values: (size,) where they lie, used up by encoding. warn: called with a sentence about values that are not
    finite and so cannot be encoded; None: NotFinite is raised. name: of the slice, in words. empty: whether nothing
    counts of the contribution at hand.

    Where nothing counts, and of a slice that was not used, the frame is zeros, and the residual waits for the next one:
    it may be that no update holds this one.
    """

    form = Form.ENCODED

    def __init__(
        self, values: Tensor, users: Tensor, warn: Callable[[str], None] | None, name: str, empty: Callable[[], bool]
    ) -> None:
        self._values, self._users, self._warn, self._name, self._empty = values, users, warn, name, empty
        self._encoding = threading.Lock()  # several replicas get the same frame, which is made once
        self._clock = -1
        self._nothing = False

    def use(self, residual: BucketResidual, section: Section) -> None:
        """Encode so from now on. section: of the bucket, that is the slice."""
        self._residual, self._section = residual, section
        self._frame = torch.zeros(section.frame_bytes, dtype=torch.uint8, device=self._values.device)
        self._there = self._frame.cpu()  # the same memory, where the CPU has it
        self._payload = as_bytes(self._there)

    @property
    def length(self) -> int:
        return len(self._payload)

    @property
    def codec(self) -> str:
        """The one that is used now."""
        return self._residual.codec.name

    def ready(self) -> int:
        return 0 if self._empty() else bits(self._users)

    def leave(self, header: Header) -> tuple[Header, Payload]:
        with self._encoding:
            if self._clock < header.clock:  # an older one is for a connection that has ended meanwhile
                self._clock, self._nothing = header.clock, not (header.used and self._encode())
                if self._nothing:
                    self._frame.zero_()
                self._there.copy_(self._frame)
        return (header._replace(used=0) if self._nothing else header), self._payload

    def _encode(self) -> bool:
        whole = finite(self._values) and self._contribute() is Encoded.WHOLE
        return whole or self._leave_out()

    def _contribute(self) -> Encoded:
        return self._residual.contribute(self._section, self._values, self._frame)

    def _leave_out(self) -> bool:
        sentence = f"the gradient of {self._name} is NaN or infinite, which cannot be encoded"
        if self._warn is None:
            raise NotFinite(sentence)
        self._warn(f"{sentence}: it is left out")
        return False


def as_bytes(values: Tensor) -> Payload:
    """The memory of a dense tensor on the CPU, of any shape."""
    return values.view(torch.uint8).numpy().data


def bits(users: Tensor | None) -> int:
    """An integer whose bit i is set where users[i] is not 0, of users (n,)."""
    if users is None:
        return ALL_USED
    return sum(1 << place for place, value in enumerate(users.tolist()) if value)
