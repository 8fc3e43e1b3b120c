"""Holdings: which ranks keep and own each range of a network's tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from volary.sharding.groups import RankMesh, leads
from volary.sharding.ranges import Range
from volary.sharding.samples import SampleShare


@dataclass(frozen=True)
class Holdings:
    """The map of who has what, as `rank` sees it; the rest is the same on all ranks.

    mesh: the axes along which ranks lie. keepers: of each range the ranks that keep it: they update it, alike, and
    have what the optimiser remembers of it. The first of them owns it: it writes it to checkpoints, and all others
    begin with its values.
    """

    rank: int
    mesh: RankMesh
    keepers: Mapping[Range, Sequence[int]]

    @classmethod
    def replicated(cls, sizes: Mapping[str, int], rank: int, ranks: int) -> Holdings:
        """Each of so many ranks keeps all. sizes: of each tensor, by name, the number of values."""
        return cls(rank, RankMesh(data=ranks), {Range(name, 0, size): range(ranks) for name, size in sizes.items()})

    @property
    def leads(self) -> bool:
        """Whether this rank acts for all: writes and says what is to be written and said once."""
        return leads(self.rank)

    @property
    def samples(self) -> SampleShare:
        """The share of each batch that this rank learns from."""
        return self.mesh.samples(self.rank)

    @property
    def in_shares(self) -> bool:
        """Whether some rank keeps less than all."""
        return any(len(ranks) < self.mesh.size for ranks in self.keepers.values())

    @property
    def owned(self) -> list[Range]:
        """The ranges that this rank owns."""
        return [part for part, ranks in self.keepers.items() if self.rank == ranks[0]]

    def within(self, part: Range) -> Iterator[tuple[Range, Sequence[int]]]:
        """Yield the ranges of `part` that the same ranks keep, and these ranks."""
        for own, ranks in self._by_name.get(part.name, ()):
            low, high = max(own.start, part.start), min(own.end, part.end)
            if low < high:
                yield Range(part.name, low, high), ranks

    def kept(self, part: Range) -> list[Range]:
        """The ranges of `part` that this rank keeps."""
        return [own for own, ranks in self.within(part) if self.rank in ranks]

    @cached_property
    def _by_name(self) -> Mapping[str, Sequence[tuple[Range, Sequence[int]]]]:
        found: dict[str, list[tuple[Range, Sequence[int]]]] = {}
        for part, ranks in self.keepers.items():
            found.setdefault(part.name, []).append((part, ranks))
        return found
