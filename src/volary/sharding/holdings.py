"""Holdings: which ranks keep and own each range of a network's tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

from volary.sharding.blocks import TensorBlock
from volary.sharding.groups import SAMPLES, RankMesh, leads
from volary.sharding.ranges import Range
from volary.sharding.samples import SampleShare


@dataclass(frozen=True)
class Holdings:
    """The map of who has what, as `rank` sees it; the rest is the same on all ranks.

    mesh: the axes along which ranks lie. keepers: of each range the ranks that keep it: they update it, alike, and
    have what the optimiser remembers of it. The first of them owns it: it writes it to checkpoints, and all others
    begin with its values. cut: likewise of each block of a tensor that is cut, trained or not; no rank has more of such
    a tensor, and no range is of it. buffers: of each buffer that not all ranks have those that do, by name.
    """

    rank: int
    mesh: RankMesh
    keepers: Mapping[Range, Sequence[int]]
    cut: Mapping[TensorBlock, Sequence[int]] = field(default_factory=dict)
    buffers: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @classmethod
    def replicated(cls, sizes: Mapping[str, int], rank: int, ranks: int) -> Holdings:
        """Each of so many ranks keeps all. sizes: of each tensor, by name, the number of values."""
        return cls(rank, RankMesh(data=ranks), {Range(name, 0, size): range(ranks) for name, size in sizes.items()})

    def repeated(self, replicas: int, replica: int) -> Holdings:
        """The same in each of so many replicas, which follow each other along the mesh's axis `data`, seen in one."""
        size = self.mesh.size

        def everywhere(ranks: Sequence[int]) -> Sequence[int]:
            return [number * size + rank for number in range(replicas) for rank in ranks]

        return Holdings(
            replica * size + self.rank,
            replace(self.mesh, data=replicas * self.mesh.data),
            {part: everywhere(ranks) for part, ranks in self.keepers.items()},
            {block: everywhere(ranks) for block, ranks in self.cut.items()},
            {name: everywhere(ranks) for name, ranks in self.buffers.items()},
        )

    @property
    def of_replica(self) -> Holdings:
        """Undo `repeated`: what the ranks of this rank's replica hold, counted from 0."""
        size = self.mesh.size // self.mesh.data
        first = self.rank - self.rank % size

        def within(ranks: Sequence[int]) -> Sequence[int]:
            return [rank - first for rank in ranks if first <= rank < first + size]

        return Holdings(
            self.rank - first,
            replace(self.mesh, data=1),
            {part: within(ranks) for part, ranks in self.keepers.items()},
            {block: within(ranks) for block, ranks in self.cut.items()},
            {name: within(ranks) for name, ranks in self.buffers.items()},
        )

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
        """Whether ranks compute with values that another one keeps."""
        return self.mesh.shard > 1

    @property
    def apart(self) -> bool:
        """Whether no rank computes with all values: each writes what it owns, and reads what it keeps."""
        return bool(self.cut) or self.mesh.pipeline > 1

    @property
    def writes_uncut(self) -> bool:
        """Whether this rank, if none has all, writes the tensors that it has whole: the first that has them does."""
        return self.rank in self.mesh.groups("pipeline")[0]

    @property
    def draws_as(self) -> int:
        """The rank whose random numbers this one draws, too: of those that compute parts of the same layers, the first.

        Their samples are the same, and so are dropout's masks of what they all have.
        """
        return next(ranks[0] for ranks in self.mesh.groups("tensor") if self.rank in ranks)

    @property
    def together(self) -> Sequence[int]:
        """The ranks that hold this rank's replica, this one among them: they learn from the same samples."""
        return next(ranks for ranks in self.mesh.groups("pipeline", "tensor") if self.rank in ranks)

    @property
    def writes(self) -> list[TensorBlock]:
        """The blocks that this rank owns."""
        return [block for block, ranks in self.cut.items() if self.rank == ranks[0]]

    def writes_of(self, name: str) -> bool:
        """Whether this rank, if none has all, writes what it has of the tensor: some of it, or all."""
        block = self.blocks.get(name)
        return self.writes_uncut if block is None else self.rank == self.cut[block][0]

    @cached_property
    def blocks(self) -> Mapping[str, TensorBlock]:
        """By name, this rank's block of each tensor that is cut."""
        return {block.name: block for block, ranks in self.cut.items() if self.rank in ranks}

    @cached_property
    def shares(self) -> Mapping[str, TensorBlock]:
        """By name, what this rank keeps of each tensor that ranks share out: a block of its values as they lie in
        memory, (size,); empty if they share out none.
        """
        sizes = {name: sum(part.size for part, _ in own) for name, own in self._by_name.items()}
        kept = {name: self.kept(Range(name, 0, size)) for name, size in sizes.items() if self.in_shares}
        return {
            name: TensorBlock(name, (sizes[name],), 0, tuple((part.start, part.end) for part in own))
            for name, own in kept.items()
            if own
        }

    @property
    def kept_apart(self) -> list[str]:
        """The names of the tensors of which this rank has a block that some of those it exchanges with do not have."""
        everyone = next(ranks for ranks in self.mesh.groups(*SAMPLES) if self.rank in ranks)
        return [block.name for block, ranks in self.cut.items() if self.rank in ranks and len(ranks) < len(everyone)]

    @property
    def kept_share(self) -> float:
        """The share of all values that this rank keeps, of tensors that are trained or cut; from 0 to 1."""
        whole = sum(part.size for part in self.keepers) + sum({b.name: prod(b.shape) for b in self.cut}.values())
        ranges = sum(part.size for part, ranks in self.keepers.items() if self.rank in ranks)
        return (ranges + sum(block.size for block in self.blocks.values())) / max(1, whole)

    def computes_with(self, name: str, size: int) -> int:
        """How many values of a tensor of so many this rank computes with."""
        if name in self.blocks:
            return self.blocks[name].size
        if self.mesh.pipeline > 1 and name in self._by_name:
            return sum(part.size for part in self.kept(Range(name, 0, size)))
        return size

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
