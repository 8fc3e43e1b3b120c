"""A channel between processes of one machine: payloads in shared memory are lent, and only headers travel."""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count
from typing import Any

from volary.comm.channels.buffer_socket import BufferSocket
from volary.comm.channels.channel import HEADER_BYTES, Message, Payload, Place, payload_bytes
from volary.comm.channels.introduction import ProvenPeer
from volary.comm.channels.segments import SegmentHandle, attach, find, memory
from volary.comm.channels.tcp import Received, TcpChannel
from volary.comm.control.errors import BadFrame, ConnectionLost

_LAYOUT = struct.Struct(f"<B{HEADER_BYTES}sQQQQ")
_NOTHING = bytes(HEADER_BYTES)
_TURN_S = 0.005  # how long a release waits for its turn to be sent here; then a thread of its own sends it


class _Kind(IntEnum):
    """BYTES: a message whose payload follows. LENT: one whose payload lies in memory: loan, segment, offset. SEGMENT:
    memory to map: number, process, descriptor, size. RELEASED: a loan is over: its number.
    """

    BYTES = 1
    LENT = 2
    SEGMENT = 3
    RELEASED = 4


@dataclass
class _Lent:
    """A message whose payload is the sender's."""

    header: bytes
    payload: Payload | None
    _release: Callable[[], None] | None = field(repr=False)
    lent: bool = True

    def release(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            self.payload = None
            release()


class LendingChannel:
    """A `Channel` between processes of one machine: payloads are lent, headers travel."""

    def __init__(self, sock: BufferSocket, known: ProvenPeer) -> None:
        self.peer: dict[str, Any] = known.other.hello
        self._wire = TcpChannel(sock, known, _LAYOUT.size)
        self._sending = threading.Lock()
        self._announced: set[int] = set()
        self._theirs: dict[int, memoryview] = {}
        self._numbers = count(1)
        self._loans: dict[int, tuple[Payload, Callable[[], None] | None]] = {}  # payload: its memory must not go

    @property
    def sent_bytes(self) -> int:
        return self._wire.sent_bytes

    @property
    def received_bytes(self) -> int:
        return self._wire.received_bytes

    def memory(self, size_bytes: int) -> Payload:
        return memory(size_bytes)

    def send(
        self,
        header: bytes,
        payload: Payload | None = None,
        sent: Callable[[], None] | None = None,
        *,
        more: bool = False,
    ) -> None:
        found = find(payload) if payload else None
        with self._sending:
            if payload is not None and found is not None:
                self._lend(header, payload, sent, *found)
                return
            self._wire.send(_LAYOUT.pack(_Kind.BYTES, header, 0, 0, 0, 0), payload, more=more)
        if sent is not None:
            sent()

    def receive(self, place: Place, timeout_s: float | None = None) -> Message:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            if deadline is not None:
                self._wire.sock.wait(max(0.0, deadline - time.monotonic()))
            try:
                message = self._receive_one(place)
            except BaseException:
                self.close()  # what follows cannot be told from the rest of this message
                raise
            if message is not None:
                return message

    def close(self) -> None:
        self._wire.close()
        with self._sending:  # whoever is in there fails at once
            loans, self._loans = self._loans, {}
        for _, sent in loans.values():
            if sent is not None:
                sent()

    def _lend(
        self, header: bytes, payload: Payload, sent: Callable[[], None] | None, segment: SegmentHandle, offset: int
    ) -> None:
        if segment.number not in self._announced:
            where = (segment.number, os.getpid(), segment.descriptor, segment.size_bytes)
            self._wire.send(_LAYOUT.pack(_Kind.SEGMENT, _NOTHING, *where), None)
            self._announced.add(segment.number)
        loan = next(self._numbers)
        self._loans[loan] = (payload, sent)
        try:
            self._wire.send(_LAYOUT.pack(_Kind.LENT, header, loan, segment.number, offset, 0), None)
        except BaseException:
            self._loans.pop(loan, None)
            raise

    def _receive_one(self, place: Place) -> Message | None:
        """A message, or None if what came concerned memory alone."""
        kind, header, first, second, third, fourth = _LAYOUT.unpack(self._wire.header())
        match kind:
            case _Kind.BYTES:
                return Received(header, self._wire.payload(place(header), payload_bytes(header)))
            case _Kind.LENT:
                return self._borrow(header, loan=first, segment=second, offset=third)
            case _Kind.SEGMENT:
                self._theirs[first] = attach(second, third, fourth)
            case _Kind.RELEASED:
                _, sent = self._loans.pop(first, (None, None))
                if sent is not None:
                    sent()
            case _:
                raise BadFrame(f"a message of kind {kind}; accepted: {', '.join(map(str, map(int, _Kind)))}")
        return None

    def _borrow(self, header: bytes, loan: int, segment: int, offset: int) -> Message:
        whole, size = self._theirs.get(segment, memoryview(b"")), payload_bytes(header)
        if offset + size > len(whole):
            raise BadFrame(f"{size} bytes are lent at {offset} of a segment of {len(whole)}")
        return _Lent(header, whole[offset : offset + size], lambda: self._release(loan))

    def _release(self, loan: int) -> None:
        """Say that a loan is over; never wait for the other side here: it may be about to wait for us."""
        release = _LAYOUT.pack(_Kind.RELEASED, _NOTHING, loan, 0, 0, 0)
        if self._sending.acquire(timeout=_TURN_S):
            try:
                if self._wire.sock.takes_more():
                    self._wire.send(release, None)
                    return
            except ConnectionLost:
                return  # the other side takes it back by itself
            finally:
                self._sending.release()
        threading.Thread(target=self._send_release, args=(release,), name="volary-release", daemon=True).start()

    def _send_release(self, head: bytes) -> None:
        with self._sending, contextlib.suppress(ConnectionLost):
            self._wire.send(head, None)
