"""Values of a slice between worker and servers, handed down with a call: memory, how it is filled and read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from volary.comm.control.errors import BadFrame
from volary.server.protocol.header import ALL_USED, Form

if TYPE_CHECKING:
    from volary.comm.channels.channel import Payload
    from volary.server.protocol.header import Header


class PushedValues(Protocol):
    """The pushed values of one slice. form, length: how it travels, and its bytes, known once it is `ready`.

    codec: what made those bytes; `none` if they are the values.
    """

    @property
    def form(self) -> Form:
        """The form of the bytes that travel."""
        ...

    @property
    def length(self) -> int:
        """The number of bytes that travel."""
        ...

    @property
    def codec(self) -> str:
        """The name of the codec of those bytes."""
        ...

    def ready(self) -> int:
        """The values are whole, and may leave. Returns a bit for each part that has a gradient."""
        ...

    def leave(self, header: Header) -> tuple[Header, Payload]:
        """Return what travels, and the header as it is sent; the thread that sends calls it, for each server."""
        ...


class PulledValues(Protocol):
    """The memory that receives the values of one slice; called by the thread that receives."""

    def room(self, header: Header) -> Payload:
        """Give memory to receive what follows. Raises BadFrame if it does not fit."""
        ...

    def take(self, header: Header, payload: Payload) -> None:
        """The values are here: in that room, or lent in `payload` until this returns. Raises BadFrame as `room`."""
        ...


class PlainMemory:
    """Values as they are in one piece of memory, from where they leave and where they come; of both protocols."""

    form = Form.EXACT
    codec = "none"

    def __init__(self, payload: Payload) -> None:
        self._payload = payload

    @property
    def length(self) -> int:
        return len(self._payload)

    def ready(self) -> int:
        return ALL_USED

    def leave(self, header: Header) -> tuple[Header, Payload]:
        return header, self._payload

    def room(self, header: Header) -> Payload:
        if header.form is not Form.EXACT or len(self._payload) != header.length:
            raise BadFrame(f"{header.length} bytes came for slice {header.slice} of {len(self._payload)}")
        return self._payload

    def take(self, header: Header, payload: Payload) -> None:
        copy(payload, self.room(header))


def copy(payload: Payload, room: Payload) -> None:
    """Copy the bytes of `payload` to `room`, unless they are there already, while other threads go on."""
    if payload is not room:
        torch.frombuffer(room, dtype=torch.uint8).copy_(torch.frombuffer(payload, dtype=torch.uint8))
