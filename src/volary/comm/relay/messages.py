"""The first messages to a gate and to a relay, and their answers."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Struct

GATE = "gate"  # the gate's service for members of the run
HOST, ANSWER = "host", "answer"  # the relay's services for gates
VIRTUAL = "127.64."  # addresses of those who are reached through a gate alone begin so; each names one rank

End: TypeAlias = tuple[str, Annotated[int, msgspec.Meta(ge=1, le=65535)]]


class _Hello(Struct, frozen=True, forbid_unknown_fields=True, tag_field="wish", tag=str.lower):
    pass


class Listen(_Hello, frozen=True):
    """Whoever is at this virtual address is told (`Call`) who connects to it; the first answer is `GateAddresses`."""

    host: str


class Reach(_Hello, frozen=True):
    """Connect to this end. The answer is `Reached`, and then bytes follow, or `NotReached`."""

    end: End


class Answer(_Hello, frozen=True):
    """To a call: these bytes are of the one who called. end: what connected to the port that was called."""

    ticket: str
    end: End


Hello: TypeAlias = Listen | Reach | Answer


class GateAddresses(Struct, frozen=True, tag=True):
    """addresses: of the gate's machine, from which its connections come."""

    addresses: list[str]


class Call(Struct, frozen=True, tag=True):
    """Somebody connects to this port: answer with the ticket."""

    port: int
    ticket: str


class Reached(Struct, frozen=True, tag=True):
    """end: what has connected to the end that was asked for."""

    end: End


class NotReached(Struct, frozen=True, tag=True):
    """reason: why nothing was reached."""

    reason: str


Reply: TypeAlias = GateAddresses | Call | Reached | NotReached


class Ticket(Struct, frozen=True, forbid_unknown_fields=True):
    """The number of a guest who waits at a relay: the relay sends it to the gate, which sends it back."""

    ticket: str


class Spliced(Struct, frozen=True, forbid_unknown_fields=True):
    """The other side is there, and what follows is between the two. refused: a sentence why it is not."""

    refused: str = ""


def is_virtual(host: str) -> bool:
    """Whether an address is of somebody who is reached through a gate alone."""
    return host.startswith(VIRTUAL)


def virtual_address(rank: int) -> str:
    """The virtual address of a rank of the run, on its own machine's loopback."""
    assert rank < 2**16, "a rank beyond what a run can have"
    return f"{VIRTUAL}{rank >> 8}.{rank & 255}"
