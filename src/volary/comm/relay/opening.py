"""A client's connection to a gate, straight or by a relay between, which sees only what is encrypted."""

from __future__ import annotations

import msgspec

from volary.comm.control.connection import Connection
from volary.comm.control.errors import BadFrame, ConnectionLost, KeyRefused
from volary.comm.relay.messages import Hello, Reply, Spliced
from volary.run.launch.way import GUEST, Way


def opened(way: Way, key: bytes, service: str, hello: Hello, timeout_s: float) -> Connection:
    """A connection to the gate, encrypted from end to end. Raises ConnectionLost, KeyRefused: they name the address."""
    plain = msgspec.to_builtins(hello)
    if not way.gate:
        return Connection.open(way.host, way.port, key, service, plain, None, timeout_s, sealed=True)
    try:
        outer = Connection.open(way.host, way.port, way.key, f"{GUEST}/{way.gate}", {}, None, timeout_s, sealed=True)
    except KeyRefused:
        raise KeyRefused(f"{way.words} does not know this way: it has started anew, or is another one") from None
    require_spliced(outer, timeout_s)
    return Connection.over(outer.detach(), way.address, key, service, plain, timeout_s)


def require_spliced(connection: Connection, timeout_s: float) -> None:
    """Wait until the relay has the other side. Raises ConnectionLost if there is none."""
    try:
        answer = msgspec.convert(connection.receive(timeout_s), Spliced)
    except (TimeoutError, BadFrame, msgspec.ValidationError) as error:
        connection.close()
        raise ConnectionLost(f"the relay does not bring the other side: {error}") from None
    if answer.refused:
        connection.close()
        raise ConnectionLost(answer.refused)


def answer_of(connection: Connection, timeout_s: float) -> Reply:
    """A gate's answer. Raises ConnectionLost, TimeoutError."""
    try:
        found: Reply = msgspec.convert(connection.receive(timeout_s), Reply)
    except (BadFrame, msgspec.ValidationError) as error:
        raise ConnectionLost(f"the gate's answer cannot be read: {error}") from None
    return found
