"""The workers of a run, as its roster knows them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from volary.comm.control.errors import BadMessage

MOST_ASKS = 16  # of one worker, unanswered


@dataclass
class Member:
    """A worker that is here. asks: how many are not answered; asked_at: since when. over: its own loop is. leaves: once
    it has done what it was given.

    saves: its own loop waits until the run is saved, with its contributions before this clock.
    """

    rank: int
    peer: int
    asks: int = 0
    asked_at: float = 0.0
    over: bool = False
    leaves: bool = False
    saves: int | None = None

    def ask(self, now: float) -> None:
        """Note that it asks for one more thing to do. Raises BadMessage if it asks for too many at once."""
        if self.asks == MOST_ASKS:
            raise BadMessage(f"rank {self.rank} asks for more than {MOST_ASKS} things at once")
        self.asked_at = self.asked_at if self.asks else now
        self.asks += 1


class Members:
    """Knows who is here, who was, and who is to come. expected: workers that the run begins with."""

    def __init__(self, expected: int) -> None:
        self._awaited = set(range(expected))
        self._coming: set[int] = set()
        self._at: dict[int, Member] = {}
        self._by_rank: dict[int, Member] = {}
        self._used: set[int] = set()

    @property
    def awaited(self) -> list[int]:
        """Ranks that the run begins with and that have not come, nor been given up."""
        return sorted(self._awaited)

    @property
    def nobody(self) -> bool:
        """Whether nobody is here, nor to come: neither of those that the run begins with nor of those let in later."""
        return not (self._at or self._awaited or self._coming)

    def expect(self, rank: int) -> None:
        """A worker was let into the run, and is starting: nobody waits for it, but it is one of those who are left."""
        if rank not in self._used:
            self._coming.add(rank)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._at.values()))

    def __len__(self) -> int:
        return len(self._at)

    def add(self, peer: int, rank: int) -> None:
        """A worker takes its place, which nobody had before."""
        self._used.add(rank)
        self._awaited.discard(rank)
        self._coming.discard(rank)
        self._at[peer] = self._by_rank[rank] = Member(rank, peer)

    def was_here(self, rank: int) -> bool:
        """Whether the place is, or was, somebody's."""
        return rank in self._used

    def at(self, peer: int) -> Member | None:
        """The worker behind a connection."""
        return self._at.get(peer)

    def of(self, rank: int) -> Member | None:
        """The worker of this rank, if it is here."""
        return self._by_rank.get(rank)

    def gone(self, rank: int) -> bool:
        """Note that a worker is gone; its place is not free again. False if it was neither here nor to come."""
        mattered = rank in self._awaited or rank in self._coming or rank in self._by_rank
        self._used.add(rank)
        self._awaited.discard(rank)
        self._coming.discard(rank)
        member = self._by_rank.pop(rank, None)
        if member is not None:
            del self._at[member.peer]
        return mattered

    def asking(self) -> list[Member]:
        """The workers that wait for something to do, longest first."""
        waiting = (each for each in self._at.values() if each.asks and not each.leaves)
        return sorted(waiting, key=lambda each: each.asked_at)
