"""Finds what all workers of a loop of one's own do alike but should share: batches, random numbers, files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from volary.errors.raised import shown

_DRAW = {
    "torch": "torch.manual_seed",
    "cuda": "torch.manual_seed",
    "numpy": "numpy.random.seed",
    "random": "random.seed",
}


@dataclass(frozen=True)
class _First:
    """A worker's report of its first steps. losses: of each; empty if it has none. drawn: by generator."""

    losses: Sequence[str]
    drawn: Mapping[str, str]


@dataclass
class Alike:
    """Takes what each of so many workers reports; gives a sentence for what is new."""

    workers: int
    _first: dict[int, _First] = field(default_factory=dict)
    _writers: dict[tuple[str, str], int] = field(default_factory=dict)  # the first, by host and path
    _warned_of_files: bool = False

    def did(self, rank: int, losses: Sequence[str], drawn: Mapping[str, str]) -> Iterator[str]:
        """A worker has taken its first steps."""
        if self.workers < 2 or rank in self._first or rank >= self.workers:
            return
        self._first[rank] = _First(losses, drawn)
        if len(self._first) < self.workers:
            return
        one, *others = self._first.values()
        if one.losses and all(other.losses == one.losses for other in others):
            yield (
                "all workers learn from the same batches: their losses are equal, bit for bit, in each of the first "
                f"{len(losses)} steps; accepted: `for batch in worker.feed(loader):`, which gives each worker its share"
            )
            return
        same = [name for name, state in one.drawn.items() if all(other.drawn.get(name) == state for other in others)]
        if same:
            yield (
                "all workers draw the same random numbers in their steps, for noise or dropout; for other numbers on "
                f"each: {_DRAW[same[0]]}(seed + worker.rank) before the loop"
            )

    def writes(self, rank: int, host: str, path: str, place: str) -> Iterator[str]:
        """A worker has opened a file to write. place: where in the program."""
        other = self._writers.setdefault((host, path), rank)
        if other != rank and not self._warned_of_files:
            self._warned_of_files = True
            first, second = sorted((other, rank))
            yield (
                f"ranks {first} and {second} both write {shown(path)} ({place}), and spoil what the other has written; "
                "accepted: `if worker.is_first:` before it, or a name with worker.rank in it"
            )
