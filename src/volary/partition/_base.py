"""The protocol of partitions: what a rank runs of a network, who keeps what of it, and how a batch is learned."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor, nn

    from volary.comm.groups.group import Group
    from volary.comm.groups.layer_group import PartGroup
    from volary.network.criterion import Criterion
    from volary.sharding.groups import RankMesh
    from volary.sharding.holdings import Holdings


class Passes(Protocol):
    """The passes of one batch through what a rank runs."""

    def forward(self) -> Tensor:
        """The loss of this rank's samples, a scalar."""
        ...

    def computed(self, loss: Tensor) -> bool:
        """Say what the loss is, a scalar; whether its backward is wanted."""
        ...

    def cut(self, count: int) -> Sequence[Passes]:
        """Cut the batch into so many micro-batches, as equal as they can be; fewer if it has fewer samples.

        The parts in which something counts, each with its share in what the batch counts.
        """
        ...

    @property
    def inputs(self) -> Tensor:
        """The samples, (count, ...)."""
        ...

    @property
    def targets(self) -> Tensor:
        """The targets of the network's outputs, (count, ...)."""
        ...

    @property
    def criterion(self) -> Criterion:
        """The function that makes the loss of outputs and targets."""
        ...

    def waiting(self) -> AbstractContextManager[None]:
        """Around a wait for other ranks: it counts as such."""
        ...

    def through(self, module: nn.Module, x: Tensor) -> Tensor:
        """Pass `x`, of any shape, through `module`, a part of the network, computed as precisely as is set."""
        ...

    def turn_back(self) -> None:
        """From now on this rank computes a backward pass, until something goes `through` a module again."""
        ...

    def loss_of(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of the network's `output` (count, ...), a scalar, and the gradient by it of its share of a batch."""
        ...

    def add_gradients(self, gradients: Mapping[nn.Parameter, Tensor]) -> None:
        """Add these to the parameters' own, as a backward pass does that ends with them."""
        ...

    def update(self, gradients: Mapping[nn.Parameter, Tensor], scale: float) -> None:
        """Update these parameters, which no other rank updates, by these gradients now; scale: a factor of them."""
        ...

    @property
    def share(self) -> float:
        """The factor of this batch's or micro-batch's loss in the contribution's."""
        ...

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of the `loss`, a scalar, times this rank's share of it, to those of the parameters."""
        ...


def whole_batch(passes: Passes) -> bool:
    """Forward, loss and backward of a network that is here whole; whether the loss was wanted."""
    loss = passes.forward()
    wanted = passes.computed(loss)
    if wanted:
        passes.backward(loss)
    return wanted


@dataclass(frozen=True)
class LayerUse:
    """How a forward uses a layer. values: that it gives for a sample. needs_gradient: what feeds it is trained."""

    values: int
    needs_gradient: bool


@dataclass(frozen=True)
class Part:
    """The `module` that one rank runs. holdings: who keeps which values of its trained parameters, and of what is cut.

    place: which part of the network this rank has, in words, for whoever reads that it is lost; empty: all of it.
    notes: how values travel between parts (`route`), and when parameters are updated (`update`), in words; empty: as
    the exchange says.

    Ranks along the axes `data`, `shard` and `hybrid` have samples of their own, and exchange contributions; ranks along
    the others hold one replica together, learn from the same samples, and vote as one.

    join: called once before anything is trained, with a group of the ranks that hold this rank's replica, which has
    connections of its own, on all of them alike: leaves this rank with its part of `module`, in place. Gives what its
    layers communicate in. Until then `module` is the whole network. None: each rank holds a replica alone. absent:
    takes part in a forward of ranks that have samples, on one that has none; it gives a scalar 0, whose backward takes
    part in theirs. None: nobody waits for it. passes_bytes: to others between parts of layers, in a step of so many
    samples, if it uses layers so, by name: of the rank that passes most. rounds: messages of them that a
    rank waits for one after another in a step. pieces: micro-batches in which a batch passes, each of which reads the
    parameters, and adds to the sums of their gradients. idle: the share of a step in which it waits
    for other ranks, if each has as much to compute. alive: of the samples of a pass those whose activations it holds
    at once, as a share. learn: takes one batch through it; returns whether its backward was wanted.
    at_once: why gradients are there only when all of a batch has passed, so that layers are left as they are; empty:
    each is there as backward comes to it. frees_gradients: a rank has memory for the sums of gradients that it keeps,
    and for others only until they have left. frees_parameters: between machines it has memory for the parameters that
    it keeps, and for others only while it computes with them.
    """

    module: nn.Module
    holdings: Holdings
    absent: Callable[[], Tensor] | None = None
    passes_bytes: Callable[[Mapping[str, LayerUse], float], float] = lambda _, __: 0.0
    rounds: Callable[[Mapping[str, LayerUse]], int] = lambda _: 0
    pieces: int = 1
    idle: float = 0.0
    alive: float = 1.0
    join: Callable[[Group], PartGroup] | None = None
    learn: Callable[[Passes], bool] = whole_batch
    place: str = ""
    notes: Mapping[str, str] = field(default_factory=dict)
    at_once: str = ""
    frees_gradients: bool = False
    frees_parameters: bool = False

    @property
    def scattered(self) -> Holdings | None:
        """The map of who keeps what, if no rank has memory for all parameters; None: each has all."""
        return self.holdings if self.frees_parameters and self.holdings.in_shares else None


class Partition(Protocol):
    """Settings of a partition: a frozen dataclass, which imports no torch."""

    @property
    @abstractmethod
    def needs(self) -> Sequence[Any]:
        """The traits of `volary.session.fitting.needs` that its exchange must have."""
        ...

    @property
    @abstractmethod
    def lacks(self) -> Mapping[Any, str]:
        """The abilities that these settings take from any exchange, each with the reason."""
        ...

    @abstractmethod
    def mesh(self, ranks: int) -> RankMesh:
        """How so many ranks lie, whatever the network is: it says which of them learn from the same samples."""
        ...

    def check(self) -> None:
        """Raise SettingError, before a run starts, if what computes for its workers is not here."""
        return

    @property
    def elsewhere(self) -> str:
        """Why gradients are not computed in the worker, in fp32 and not compiled; empty: they are."""
        return ""

    @property
    def chooses(self) -> bool:
        """Whether it stands for another partition, which is chosen once the network is known."""
        return False

    @property
    def local_steps(self) -> bool:
        """Whether ranks that hold a replica together may update it for some steps without those that hold others."""
        return not self.needs

    def parts(self, ranks: int) -> int:
        """Into how many parts so many ranks cut each batch, of which each has a sample at least."""
        return self.mesh(ranks).shares

    def planned(self, module: nn.Module, ranks: int, inputs: Callable[[int], Tensor]) -> Mapping[str, Any]:
        """Settings that this network decides for so many ranks, by name, in plain values: asked of one rank, before
        `part` is of all. inputs: samples of one of so many parts of a batch. Raises what the network's code raises.
        """
        return {}

    @abstractmethod
    def part(self, module: nn.Module, rank: int, ranks: int) -> Part:
        """The part of `module` that `rank` of so many runs, which lie as `mesh` says; all have the same holdings."""
        ...


def trained_sizes(module: nn.Module) -> dict[str, int]:
    """How many values each trained parameter has, by name, in the network's order."""
    from volary.naming import trained_parameters

    return {name: one.numel() for name, one in trained_parameters(module).items()}
