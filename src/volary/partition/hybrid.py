"""Hybrid: convolutions are data parallel, and fully connected layers are cut over the same workers.

Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks", arXiv:1404.5997. Convolutions have
few parameters and much work, fully connected layers many parameters and little work. So each worker has the
convolutions, and samples of its own; of a fully connected layer it has some of the outputs, of all samples. Gradients
of such a layer are whole where they are used, and never travel: activations do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from volary.errors import SettingError
from volary.partition._base import Part, Partition, trained_sizes
from volary.sharding.groups import RankMesh
from volary.sharding.holdings import Holdings
from volary.sharding.ranges import Range

if TYPE_CHECKING:
    from torch import nn

AUTO = "auto"
_ALONE = "with partition=hybrid a worker has the gradients of its part of fully connected layers alone"
_AGAIN = "with partition.updates=sub_batch layers that are cut are updated several times a step"


@dataclass(frozen=True, kw_only=True)
class Hybrid(Partition):
    """Workers hold parts of fully connected layers, and all other layers whole."""

    scheme: Literal[1, 2, 3] = 1  # handed over at once: 1 all batches, 2 one worker's, 3 a part of every worker's
    layers: Any = AUTO  # names of the fully connected layers that are cut; auto: all that have outputs for all workers
    updates: Literal["batch", "sub_batch"] = "batch"  # of layers that are cut: by all samples, or by those handed over

    needs: ClassVar[Sequence[str]] = ("steps together", "whole gradient")

    def __post_init__(self) -> None:
        if self.scheme not in (1, 2, 3):
            raise SettingError(f"scheme is {self.scheme}; accepted: 1, 2 or 3")
        if self.updates == "sub_batch" and self.scheme == 1:
            raise SettingError(
                "updates is sub_batch, and scheme 1 hands over all batches at once; accepted: scheme 2 or 3"
            )
        if self.layers == AUTO:
            return
        if isinstance(self.layers, str) or not isinstance(self.layers, Sequence) or not self.layers:
            raise SettingError(f"layers is {self.layers!r}; accepted: auto, or a list of names, as [fc6, fc7]")
        if twice := [name for number, name in enumerate(self.layers) if name in self.layers[:number]]:
            raise SettingError(f"layers names {twice[0]} twice; accepted: each once")

    @property
    def lacks(self) -> Mapping[str, str]:
        own = {
            "all sums": _ALONE,
            "whole tensors": "with partition=hybrid workers have parts of layers, and update these",
        }
        again = ("own loop", "gradient norm", "one update") if self.updates == "sub_batch" else ()
        return own | dict.fromkeys(again, _AGAIN)

    def mesh(self, ranks: int) -> RankMesh:
        return RankMesh(hybrid=ranks)

    def part(self, module: nn.Module, rank: int, ranks: int) -> Part:
        """The network, of whose fully connected layers this rank is to hold its outputs.

        Raises SettingError if there are none, or they cannot be cut.
        """
        from volary.partition.cutting.bytes_passed import passed_by_hybrid, rounds_by_hybrid
        from volary.partition.cutting.hybrid_network import cut_outputs, outputs_of, take_part
        from volary.partition.cutting.sub_batches import SubBatches

        mesh, sizes = self.mesh(ranks), trained_sizes(module)
        if ranks == 1:
            return Part(module, Holdings.replicated(sizes, rank, ranks))
        names = outputs_of(module, None if self.layers == AUTO else self.layers, ranks)
        cut = {block: [owner] for one in names.values() for blocks in one for owner, block in enumerate(blocks)}
        whole = {block.name for block in cut}
        keepers = {Range(name, 0, size): range(ranks) for name, size in sizes.items() if name not in whole}
        holdings = Holdings(rank, mesh, keepers, cut)
        scheme = self.scheme if self.updates == "batch" else 1
        join = partial(cut_outputs, module, list(names), holdings, scheme)
        part = Part(
            module,
            holdings,
            place=f"part {rank + 1} of {ranks} of cut layers",
            join=join,
            absent=partial(take_part, module, list(names)),
            passes_bytes=partial(passed_by_hybrid, module, list(names), ranks),
            rounds=partial(rounds_by_hybrid, list(names)),
        )
        if self.updates == "batch":
            return part
        own, why = SubBatches(module, list(names), self.scheme), "layers that are cut are updated while a batch passes"
        return replace(part, join=partial(own.join, join), learn=own.learn, at_once=why)


PARTITION = Hybrid
