"""Messages from workers to a shard in tests: pushes and pulls of slices of a few bytes."""

from __future__ import annotations

from volary.server.protocol.header import Header, MessageKind

WORKERS, BYTES = range(3), 8  # who pushes; how long a slice is


def push(worker, number, clock, version=0, length=BYTES):
    return Header(MessageKind.PUSH, number, worker, clock, version, length=length)


def pull(worker, number, request=0, at_least=0, snapshot=0):
    return Header(MessageKind.PULL, number, worker, request, at_least, snapshot=snapshot)
