"""Connections of a group's ranks with each other that are Volary's own, beside those of torch's backend.

For many small messages, as the frames of codecs are: gloo's event loop turns without waiting while the thread that
sends holds a connection's lock, which takes more CPU time than such messages do.
"""

from __future__ import annotations

import queue
import secrets
import struct
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from volary.comm.channels.channel import HEADER_BYTES, Channel, Credentials, Payload
from volary.comm.control.errors import BadFrame, ConnectionLost
from volary.comm.groups import gloo
from volary.comm.groups.leading import from_leader
from volary.comm.relay.forwarder import reachable
from volary.comm.relay.messages import is_virtual
from volary.comm.transports.tcp import Tcp
from volary.errors import PeerLost

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from volary.comm.groups.group import Bulletin, Group

CONNECT_S = 60.0
JOIN_S = 5.0
KEY_BYTES = 32
ATTEMPT = "mesh"  # its key is of one mesh alone, which tells it from any other
MOST_BYTES = 2**30  # of a message that nobody awaits yet
FIRST_OWN_TAG = 2**32  # those of sums and frames are below
_HEAD = struct.Struct(f"<q{HEADER_BYTES - 16}xq")  # the tag, and how many bytes follow

_meshes: dict[ProcessGroup, Mesh] = {}


def of(group: Group) -> Mesh:
    """The mesh of the group's ranks, which all groups within it share; made at first: a collective call then.

    Raises ConnectionLost and KeyRefused where ranks cannot connect.
    """
    found = _meshes.get(group.process_group)
    if found is None:
        found = _meshes[group.process_group] = Mesh(group.bulletin.within("mesh"), group.timeout_s)
    return found


def close_all() -> None:
    """End all meshes, from any thread: whoever waits for a message raises PeerLost."""
    for mesh in _meshes.values():
        mesh.close()
    _meshes.clear()


class Mesh:
    """This rank's connections to all others of `bulletin`. Making it is a collective call.

    Rank 0 draws its key, which the ranks have from each other over the run's board; any two of them prove it to each
    other, and nobody listens once all are connected. What travels is encrypted, also on loopback. For each peer a
    thread receives, so nobody waits for room where two send to each other. A peer that takes nothing for `timeout_s` in
    the middle of a message, as a process does that was stopped, is lost.
    """

    def __init__(self, bulletin: Bulletin, timeout_s: float) -> None:
        key = bytes.fromhex(from_leader(bulletin, "key", lambda: secrets.token_hex(KEY_BYTES)))
        self._peers = {rank: _Peer(channel) for rank, channel in _connected(bulletin, key, timeout_s).items()}
        self._next_tag = FIRST_OWN_TAG

    def send(self, memory: Payload, to: int, tag: int) -> None:
        """Send a message, whose memory may change again at once. Raises PeerLost."""
        self._peers[to].send(memory, tag)

    def receive(self, memory: Payload, source: int, tag: int) -> MeshMessage:
        """Await a message of exactly this size; those of a source and tag come in the order of being sent."""
        return self._peers[source].receive(memory, tag)

    def listen(self, size_bytes: int, source: int, tag: int, on_message: Callable[[bytes], None]) -> None:
        """Call `on_message` with each message of this size, on the thread that receives. Before the first is sent.

        on_message: returns at once.
        """
        self._peers[source].listen(size_bytes, tag, on_message)

    def new_tag(self) -> int:
        """A tag that nobody else uses. A collective call."""
        self._next_tag += 1
        return self._next_tag

    def close(self) -> None:
        """End all connections, and the threads that receive. Harmless when repeated."""
        for peer in self._peers.values():
            peer.close()
        for peer in self._peers.values():
            peer.join()


class MeshMessage:
    """A message that is awaited, or comes into memory of its own before it is. arrived: called when it is here."""

    def __init__(self, memory: Payload, arrived: Callable[[], None] | None = None) -> None:
        self.memory, self._arrived = memory, arrived
        self.place: Payload | None = None  # where it is to lie, if that was not known when it came
        self.lost = ""
        self._waiting = threading.Lock()
        self._waiting.acquire()

    def arrive(self, lost: str = "") -> None:
        """Note that it is here, or never comes. Called once."""
        self.lost = lost
        self._waiting.release()
        if self._arrived is not None and not lost:
            self._arrived()

    def wait(self) -> None:
        """Return when it has come. Raises PeerLost if the peer went away before."""
        self._waiting.acquire()
        self._waiting.release()
        if self.lost:
            raise PeerLost(f"the exchange broke: {self.lost}")
        if self.place is not None:
            self.place[:] = self.memory
            self.place = None


class _Peer:
    """The connection to one rank."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._awaited: defaultdict[int, deque[MeshMessage]] = defaultdict(deque)  # by tag
        self._early: defaultdict[int, deque[MeshMessage]] = defaultdict(deque)
        self._lost = ""
        self._changing, self._sending = threading.Lock(), threading.Lock()
        self._thread = threading.Thread(target=self._run, name="mesh", daemon=True)
        self._thread.start()

    def send(self, memory: Payload, tag: int) -> None:
        try:
            with self._sending:
                self._channel.send(_HEAD.pack(tag, len(memory)), memory)
        except ConnectionLost as problem:
            raise PeerLost(f"the exchange broke: {problem}") from problem

    def receive(self, memory: Payload, tag: int) -> MeshMessage:
        with self._changing:
            early = _next(self._early, tag)
            if early is not None:
                assert len(early.memory) == len(memory), f"{len(early.memory)} bytes came for {len(memory)}"
                early.place = memory
                return early
            return self._await(MeshMessage(memory), tag)

    def listen(self, size_bytes: int, tag: int, on_message: Callable[[bytes], None]) -> None:
        memory = memoryview(bytearray(size_bytes))

        def arrived() -> None:
            received = bytes(memory)
            with self._changing:
                self._await(MeshMessage(memory, arrived), tag)
            on_message(received)

        with self._changing:
            self._await(MeshMessage(memory, arrived), tag)

    def _await(self, message: MeshMessage, tag: int) -> MeshMessage:
        if self._lost:
            message.arrive(self._lost)
        else:
            self._awaited[tag].append(message)
        return message

    def close(self) -> None:
        self._channel.close()

    def join(self) -> None:
        if threading.current_thread() is not self._thread:
            self._thread.join(JOIN_S)

    def _run(self) -> None:
        coming: list[MeshMessage] = []

        def place(header: bytes) -> Payload:
            coming.append(self._expected(*_HEAD.unpack(header)))
            return coming[0].memory

        try:
            while True:
                self._channel.receive(place)
                coming.pop().arrive()
        except (ConnectionLost, BadFrame) as problem:
            self._end(coming, str(problem))

    def _expected(self, tag: int, size_bytes: int) -> MeshMessage:
        """The message with this header. Raises BadFrame if it has not the size that is awaited, or too large a one."""
        with self._changing:
            message = _next(self._awaited, tag)
            if message is not None:
                if len(message.memory) == size_bytes:
                    return message
                self._awaited[tag].appendleft(message)
                raise BadFrame(f"{size_bytes} bytes came where {len(message.memory)} were awaited")
            if not 0 < size_bytes <= MOST_BYTES:
                raise BadFrame(f"a message of {size_bytes} bytes; accepted: 1 to {MOST_BYTES}")
            message = MeshMessage(memoryview(bytearray(size_bytes)))
            self._early[tag].append(message)
            return message

    def _end(self, coming: Collection[MeshMessage], lost: str) -> None:
        with self._changing:
            self._lost = lost
            for message in [*coming, *(one for queued in self._awaited.values() for one in queued)]:
                message.arrive(lost)
            self._awaited.clear()


def _next(queues: defaultdict[int, deque[MeshMessage]], tag: int) -> MeshMessage | None:
    """The first with this tag, taken out."""
    queued = queues.get(tag)
    if not queued:
        return None
    message = queued.popleft()
    if not queued:
        del queues[tag]
    return message


def _connected(bulletin: Bulletin, key: bytes, timeout_s: float) -> dict[int, Channel]:
    """Channels to all other ranks: each connects to those before it, and who is behind a gate to those who are not.
    Nobody listens any more.
    """
    arrived: queue.SimpleQueue[Channel] = queue.SimpleQueue()
    channels: list[tuple[int, Channel]] = []

    def of(rank: int) -> Credentials:
        return Credentials(key, ATTEMPT, rank, "always", timeout_s)

    listener = Tcp().listen(gloo.address(), of(bulletin.rank), arrived.put)
    try:
        addresses = bulletin.share("address", listener.address)
        behind = [is_virtual(host) for host, _ in addresses]
        for other, (host, port) in enumerate(addresses):
            if (behind[bulletin.rank], bulletin.rank) > (behind[other], other):
                there = reachable((host, port))
                channels.append((other, Tcp().connect(there, of(other), {"rank": bulletin.rank}, CONNECT_S)))
        bulletin.share("connected", True)
        while len(channels) < bulletin.size - 1:
            channel = arrived.get(timeout=CONNECT_S)
            channels.append((channel.peer["rank"], channel))
    except BaseException as problem:
        for _, channel in channels:
            channel.close()
        if isinstance(problem, queue.Empty):
            raise ConnectionLost(f"{len(channels)} of {bulletin.size - 1} other ranks are connected") from None
        raise
    finally:
        listener.close()
    return dict(channels)
