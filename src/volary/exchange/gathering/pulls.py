"""Pulls of values from the ranks that own them: whoever wants some asks, and gets them as of the version asked for.

Nobody has to ask for the same as others do, or as often: a rank without samples asks for nothing, and one whose network
takes another branch for something else. What is asked for before its owner has it waits there.
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from volary.comm.control.errors import BadFrame
from volary.comm.groups import mesh
from volary.errors import PeerLost

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from volary.comm.groups.group import Group
    from volary.comm.groups.mesh import MeshMessage

JOIN_S = 5.0
_ASKED = struct.Struct("<qq")  # the unit, and the version that its values are to have


class Pulls:
    """The values of units, `pieces` of memory by unit and by the rank that owns them. A collective call.

    Version n is what n updates have made of them. One thread gives others what they asked for; it takes turns,
    beginning with the next rank, so that not all owners send to the same one at once. sent_bytes, received_bytes:
    payload since the start.
    """

    def __init__(self, group: Group, pieces: Sequence[Sequence[Sequence[memoryview]]]) -> None:
        self._rank, self._size, self._pieces = group.rank, group.size, pieces
        self._mesh = mesh.of(group)
        self._asked_tag, self._values_tag = self._mesh.new_tag(), self._mesh.new_tag()
        self._changed = threading.Condition()
        self._version, self._left, self._parts = 0, [0] * len(pieces), [0] * len(pieces)
        self._asked = [deque[tuple[int, int]]() for _ in range(group.size)]  # by rank: units, and of which version
        self._leaving = [deque[memoryview]() for _ in range(group.size)]
        self._turn = self._rank + 1
        self._closing = True
        self._asked_bytes = self._given_bytes = self.received_bytes = 0
        for rank in self._others():
            self._mesh.listen(_ASKED.size, rank, self._asked_tag, partial(self._answer, rank))
        group.bulletin.within("pulls").share("listening", 1)
        self._thread = threading.Thread()

    @property
    def sent_bytes(self) -> int:
        """Payload that this rank has sent."""
        return self._asked_bytes + self._given_bytes

    def follow(self, parts: Sequence[int]) -> None:
        """Give others what they ask for, from now on. parts: by unit, how many of an update change what it owns."""
        assert self._closing and not any(self._left), "an update is under way"
        self._parts, self._closing = list(parts), False
        self._thread = threading.Thread(target=self._give, name="pulls", daemon=True)
        self._thread.start()

    def next_version(self) -> None:
        """From now on, ask for values as of one update more, which is under way."""
        with self._changed:
            self._version += 1
            self._left = list(self._parts)
            self._changed.notify_all()

    def updated(self, units: Collection[int]) -> None:
        """One part of the update is made, on this rank, of each of these units."""
        with self._changed:
            for unit in units:
                self._left[unit] -= 1
            self._changed.notify_all()

    def own_is_new(self, unit: int) -> bool:
        """Whether what this rank owns of the unit is as of the newest version."""
        return not self._left[unit]

    def ask(self, unit: int) -> list[MeshMessage]:
        """Ask all owners of the unit for its values, which come straight into their place. Raises PeerLost."""
        coming: list[MeshMessage] = []
        for rank in self._others():
            if own := self._pieces[unit][rank]:
                coming += [self._mesh.receive(piece, rank, self._values_tag) for piece in own]
                self._mesh.send(memoryview(_ASKED.pack(unit, self._version)), rank, self._asked_tag)
                self._asked_bytes += _ASKED.size
                self.received_bytes += sum(map(len, own))
        return coming

    def close(self) -> None:
        """Give nobody anything until it follows again. Harmless when repeated."""
        with self._changed:
            closed, self._closing = self._closing, True
            self._changed.notify_all()
        if not closed:
            self._thread.join(JOIN_S)

    def _others(self) -> Sequence[int]:
        return [(self._rank + step) % self._size for step in range(1, self._size)]

    def _answer(self, rank: int, message: bytes) -> None:
        unit, version = _ASKED.unpack(message)
        if not 0 <= unit < len(self._pieces):
            raise BadFrame(f"rank {rank} asks for unit {unit} of {len(self._pieces)}")
        with self._changed:
            self._asked[rank].append((unit, version))
            self._changed.notify_all()

    def _give(self) -> None:
        while (found := self._next()) is not None:
            rank, piece = found
            try:
                self._mesh.send(piece, rank, self._values_tag)
                self._given_bytes += len(piece)
            except PeerLost:  # whoever needs that rank hears of it
                with self._changed:
                    self._leaving[rank].clear()
                    self._asked[rank].clear()

    def _next(self) -> tuple[int, memoryview] | None:
        """Wait for a piece that a rank may have; None once it is closed."""
        with self._changed:
            while not self._closing:
                for step in range(self._size):
                    rank = (self._turn + step) % self._size
                    if pieces := self._pieces_for(rank):
                        self._turn = rank + 1
                        return rank, pieces.popleft()
                self._changed.wait()
        return None

    def _pieces_for(self, rank: int) -> deque[memoryview]:
        """The pieces to send to `rank`: of one unit after the other, as of the version that was asked for."""
        leaving, asked = self._leaving[rank], self._asked[rank]
        if not leaving and asked:
            unit, version = asked[0]
            if version < self._version or (version == self._version and not self._left[unit]):
                asked.popleft()
                leaving.extend(self._pieces[unit][self._rank])
        return leaving
