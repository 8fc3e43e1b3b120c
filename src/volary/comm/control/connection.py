"""A client's end of a keyed connection: blocking calls, each with its bound."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from typing import Any, Self

from volary.comm.control import congestion
from volary.comm.control.errors import BadFrame, ConnectionLost, KeyRefused, NobodyThere
from volary.comm.control.frames import FRAME_BYTES, STRANGER_FRAME_BYTES, FrameReader, decode, encode
from volary.comm.control.handshake import ClientSide
from volary.comm.control.sealing import TAG_BYTES, Seal, stays_here
from volary.comm.control.service import Guest

_READ_BYTES = 64 * 2**10
_RETRY_S = 0.05  # between attempts while the server is too busy with strangers to keep us


class Connection:
    """Messages to and from one service of the run's server. One thread may send while another receives.

    send_timeout_s: the time for which a send may stand still.
    """

    attempt_id: str  # the server's, as proved

    def __init__(self, sock: socket.socket, peer: str, send_timeout_s: float) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._peer = peer
        self.send_timeout_s = send_timeout_s
        self._reader = FrameReader(STRANGER_FRAME_BYTES)
        self._seals: tuple[Seal, Seal] | None = None  # of what is sent and received, beyond loopback
        self._sending, self._receiving = threading.Lock(), threading.Lock()

    @classmethod
    def open(
        cls,
        host: str,
        port: int,
        key: bytes,
        service: str,
        hello: dict[str, Any],
        attempt_id: str | None = None,
        timeout_s: float = 10.0,
        *,
        sealed: bool = False,
    ) -> Self:
        """Connect, prove the key to each other, and say `hello` to `service`. Returns when the server has agreed.

        attempt_id: refuse a server of any other restart attempt; None takes any. timeout_s: bound of all this together,
        and of the time that a later send may stand still, until send_timeout_s is set. sealed: all is encrypted, on
        loopback, too; always with a `Reception`. Tries again within it if the server lets go of us before judging (it
        does under a flood). Raises KeyRefused, OtherAttempt, ConnectionLost, and NobodyThere among these.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            sock, address = _connect(host, port, deadline)
            side = ClientSide(
                key, service, attempt_id, sealed=sealed or not stays_here(address)
            )  # a nonce is for one attempt
            connection = cls(sock, f"{host}:{port}", timeout_s)
            try:
                connection._greet(side, hello, deadline)
                return connection
            except ConnectionLost:
                connection.close()
                if time.monotonic() + _RETRY_S >= deadline:
                    raise
                time.sleep(_RETRY_S)
            except BaseException:
                connection.close()
                raise

    @classmethod
    def over(
        cls, sock: socket.socket, peer: str, key: bytes, service: str, hello: dict[str, Any], timeout_s: float
    ) -> Self:
        """Do as `open` over a socket that is connected, and encrypt all. Raises as that does; then it is closed."""
        connection = cls(sock, peer, timeout_s)
        try:
            connection._greet(ClientSide(key, service, None, sealed=True), hello, time.monotonic() + timeout_s)
        except BaseException:
            connection.close()
            raise
        return connection

    @classmethod
    def taken_over(cls, guest: Guest, send_timeout_s: float) -> Self:
        """The server's end of a connection that a `Reception` has taken over."""
        connection = cls(guest.sock, guest.address, send_timeout_s)
        connection._seals = guest.outgoing, guest.incoming
        connection._reader.limit_bytes = FRAME_BYTES + TAG_BYTES
        return connection

    def send(self, message: Any) -> None:
        """Send one message. Raises ConnectionLost if the server is gone or takes nothing for the timeout of `open`."""
        self._write(encode(message), time.monotonic() + self.send_timeout_s, still_s=self.send_timeout_s)

    def receive(self, timeout_s: float) -> Any:
        """The next message, whose bytes may come slowly: `timeout_s` bounds the time in which none does.

        Raises TimeoutError (the connection stays good), ConnectionLost or BadFrame.
        """
        return decode(self._frame(time.monotonic() + timeout_s, still_s=timeout_s))

    @property
    def descriptor(self) -> int:
        """The descriptor of its socket; -1 once it is closed."""
        return self._sock.fileno()

    def detach(self) -> socket.socket:
        """Its socket, which is the caller's from now on: nothing has come that was not received."""
        assert not self._reader.pending_bytes, "more has come"
        return self._sock

    def close(self) -> None:
        """Close, and wake whoever is in `send` or `receive`: they raise ConnectionLost. Harmless when repeated."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        with self._sending, self._receiving:  # a descriptor that a poll still holds must not be given to someone else
            self._sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _greet(self, side: ClientSide, hello: dict[str, Any], deadline: float) -> None:
        try:
            self._write(side.opening(), deadline)
            self._write(side.answer(self._frame(deadline)), deadline)
            self.attempt_id = side.judge(self._frame(deadline))
            self._trust(side)
            self._write(encode(hello), deadline)
        except BadFrame as problem:
            raise KeyRefused(f"what listens at {self._peer} is not this run's server: {problem}") from None
        except TimeoutError:
            raise ConnectionLost(f"{self._peer} accepted the connection but did not finish the handshake") from None

    def _trust(self, side: ClientSide) -> None:
        if side.sealed:
            keys = side.keys()
            self._seals = Seal(keys.outgoing), Seal(keys.incoming)
        self._reader.limit_bytes = FRAME_BYTES + (TAG_BYTES if self._seals else 0)

    def _frame(self, deadline: float, still_s: float | None = None) -> bytes:
        """A whole frame, by the deadline; still_s: by so many seconds after the last byte that has come."""
        with self._receiving:
            while (body := self._reader.take()) is None:
                self._await(select.POLLIN, deadline)
                try:
                    data = self._sock.recv(_READ_BYTES)
                except BlockingIOError:
                    continue
                except OSError as problem:
                    raise ConnectionLost(f"the connection to {self._peer} broke: {problem}") from None
                if not data:
                    raise ConnectionLost(f"{self._peer} closed the connection")
                self._reader.feed(data)
                deadline = deadline if still_s is None else time.monotonic() + still_s
            return body if self._seals is None else self._seals[1].open_body(body)

    def _write(self, frame: bytes, deadline: float, still_s: float | None = None) -> None:
        with self._sending:
            rest = memoryview(frame if self._seals is None else self._seals[0].seal_frame(frame))
            while rest:
                try:
                    rest = rest[self._sock.send(rest) :]
                    deadline = deadline if still_s is None else time.monotonic() + still_s
                except BlockingIOError:
                    try:
                        self._await(select.POLLOUT, deadline)
                    except TimeoutError:  # half a frame may be out: nothing can follow it
                        raise ConnectionLost(f"{self._peer} stopped reading what is sent to it") from None
                except OSError as problem:
                    raise ConnectionLost(f"the connection to {self._peer} broke: {problem}") from None

    def _await(self, events: int, deadline: float) -> None:
        descriptor = self._sock.fileno()
        if descriptor < 0:
            raise ConnectionLost(f"the connection to {self._peer} was closed on this side")
        poll = select.poll()
        poll.register(descriptor, events)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError(f"nothing from {self._peer} in time")


def _connect(host: str, port: int, deadline: float) -> tuple[socket.socket, str]:
    """A connection, and the address at its other end."""
    try:
        sock = socket.create_connection((host, port), timeout=max(0.001, deadline - time.monotonic()))
        address = str(sock.getpeername()[0])
    except ConnectionRefusedError as problem:
        raise NobodyThere(f"no server listens at {host}:{port}: {problem}") from None
    except OSError as problem:
        raise ConnectionLost(f"no server answers at {host}:{port}: {problem}") from None
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    congestion.suit(sock, address)
    return sock, address
