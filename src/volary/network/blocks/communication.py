"""Layers that communicate: what one worker's part of a network computes is read by another's, and gradients flow back.

Lee, Purushwalkam, Cogswell, Crandall & Batra, "Why M heads are better than one: training a diverse ensemble of deep
networks" (MPI-Caffe), arXiv:1511.06314, 2015; Akiba, Fukuda & Suzuki, "ChainerMN", 2017, has them as functions.

Each layer is of the same network on all workers, or of the same line of all programs. A gradient is of the sum of all
workers' losses. A worker whose values went elsewhere alone gets a zero for them, through which their gradients come:
it adds that to its loss, or calls `backward` on it. As everybody's layers communicate in the same order, so do their
gradients, in the opposite one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from volary.errors import BadInput, RanksDiffer

_FORWARD_TAG, _BACKWARD_TAG = 1, 2
_KINDS = ("Send and Receive", "Broadcast", "Gather", "Reduce", "AllToAll", "a distributed array's exchange")
_WANTED = 128  # the bit of a message that says that a gradient is to come back


class TensorChannel(Protocol):
    """Carries tensors among the workers of a run, of whom this one is `rank` of `size`: `worker.channel()`."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...

    def send(self, values: Tensor, to: int, tag: int, about: int = 0) -> None:
        """Send `values`, of any shape, and wait for nobody. about: a byte that comes with them. Raises PeerLost."""
        ...

    def receive(self, source: int, tag: int) -> tuple[Tensor, int]:
        """Return the next tensor of any shape from `source` with this tag, and its byte. Raises PeerLost."""
        ...


class Send(nn.Module):
    """Its input goes to worker `target`, which has a `Receive`; what it gives is a zero. Raises BadInput."""

    def __init__(self, channel: TensorChannel, target: int) -> None:
        super().__init__()
        self.channel, self.target = channel, _another(channel, target)

    def forward(self, x: Tensor) -> Tensor:
        """Send `x`, of any shape; a scalar zero, through which its gradient comes."""
        return pass_tensors(self.channel, "Send and Receive", {self.target: x}, ())[0]


class Receive(nn.Module):
    """Gives what worker `source` sends with a `Send`. Raises BadInput."""

    def __init__(self, channel: TensorChannel, source: int) -> None:
        super().__init__()
        self.channel, self.source = channel, _another(channel, source)

    def forward(self, _: Any = None) -> Tensor:
        """Return the other's tensor, of its shape. What this is called with counts for nothing."""
        return pass_tensors(self.channel, "Send and Receive", {}, (self.source,))[0]


class Broadcast(nn.Module):
    """All workers of `on` get what `root`, one of them, has; gradients add up there. on: None: all. Raises BadInput."""

    def __init__(self, channel: TensorChannel, root: int, on: Sequence[int] | None = None) -> None:
        super().__init__()
        self.channel, self.on = channel, _group(channel, on, root)
        self.root = root

    def forward(self, x: Tensor) -> Tensor:
        """Return root's `x`, of any shape; a worker beyond the group has its own."""
        if self.channel.rank not in self.on:
            return x
        outgoing = dict.fromkeys(self.on, x) if self.channel.rank == self.root else {}
        return pass_tensors(self.channel, "Broadcast", outgoing, (self.root,))[0]


class _ToRoot(nn.Module, ABC):
    """`root` makes one tensor of what all workers of `on` have; the others get a scalar zero.

    on: None: all, by rank. Raises BadInput.
    """

    def __init__(self, channel: TensorChannel, root: int, on: Sequence[int] | None = None) -> None:
        super().__init__()
        self.channel, self.on = channel, _group(channel, on, root)
        self.root = root

    def forward(self, x: Tensor) -> Tensor:
        """Return on root what it makes of all `x`, of any shapes that fit each other.

        The others get a scalar zero; a worker beyond the group has its own `x`. Raises RanksDiffer.
        """
        if self.channel.rank not in self.on:
            return x
        sources = self.on if self.channel.rank == self.root else ()
        arrived = pass_tensors(self.channel, type(self).__name__, {self.root: x}, sources)
        return self._together(arrived) if sources else arrived[0]

    @abstractmethod
    def _together(self, arrived: Sequence[Tensor]) -> Tensor:
        """Make one tensor of those of all workers, in the order of `on`. Raises RanksDiffer."""


class Gather(_ToRoot):
    """`root` gets the rows of all workers of `on`, in that order.

    Tensors (rows, ...), of which each worker may have another number, or none, become (all rows, ...).
    """

    def _together(self, arrived: Sequence[Tensor]) -> Tensor:
        _alike("Gather", self.on, [(part.dtype, tuple(part.shape[1:])) for part in arrived])
        return torch.cat(list(arrived))


class Reduce(_ToRoot):
    """`root` gets the sum over all workers of `on`, of tensors of one shape, added in that order."""

    def _together(self, arrived: Sequence[Tensor]) -> Tensor:
        _alike("Reduce", self.on, [(part.dtype, tuple(part.shape)) for part in arrived])
        total = arrived[0]
        for part in arrived[1:]:
            total = total + part
        return total


class AllToAll(nn.Module):
    """Each worker of `on` cuts its rows into a part for each of them, and gets one of each. on: None: all.

    Raises BadInput.
    """

    def __init__(self, channel: TensorChannel, on: Sequence[int] | None = None) -> None:
        super().__init__()
        self.channel, self.on = channel, _group(channel, on)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, ...) to (rows that came, ...): the parts for this worker, in the order of `on`.

        Parts differ by a row at most, the first are the larger ones (`torch.tensor_split`); they may be empty. A worker
        beyond the group has its own `x`. Raises RanksDiffer.
        """
        if self.channel.rank not in self.on:
            return x
        parts = x.tensor_split(len(self.on))
        arrived = pass_tensors(self.channel, "AllToAll", dict(zip(self.on, parts, strict=True)), self.on)
        _alike("AllToAll", self.on, [(part.dtype, tuple(part.shape[1:])) for part in arrived])
        return torch.cat(arrived)


class OnWorkers(nn.Module):
    """A part of a network that the workers of `on` alone have. make: makes it, there. Raises BadInput."""

    def __init__(self, channel: TensorChannel, make: Callable[[], nn.Module], on: Sequence[int]) -> None:
        super().__init__()
        self.part = make() if channel.rank in _group(channel, on) else nn.Identity()

    def forward(self, x: Any) -> Any:
        """Return what the part makes of `x`; elsewhere `x` itself."""
        return self.part(x)


def _group(channel: TensorChannel, on: Sequence[int] | None, root: int | None = None) -> Sequence[int]:
    ranks = range(channel.size) if on is None else tuple(on)
    if not ranks or len(set(ranks)) < len(ranks) or not set(ranks) <= set(range(channel.size)):
        raise BadInput(f"on is {list(ranks)}; accepted: different workers from 0 to {channel.size - 1}")
    if root is not None and root not in ranks:
        raise BadInput(f"root is {root}; accepted: a worker of the group, {', '.join(map(str, ranks))}")
    return ranks


def _another(channel: TensorChannel, rank: int) -> int:
    if rank == channel.rank or rank not in range(channel.size):
        raise BadInput(f"worker {channel.rank} is to pass tensors with worker {rank}; accepted: another one of the run")
    return rank


def _alike(kind: str, on: Sequence[int], found: Sequence[tuple[torch.dtype, tuple[int, ...]]]) -> None:
    for rank, one in zip(on, found, strict=True):
        if one != found[0]:
            shapes = [f"{of} {list(shape)} on worker {who}" for who, (of, shape) in ((on[0], found[0]), (rank, one))]
            what = "values" if kind == "Reduce" else "rows"
            raise RanksDiffer(f"{kind}: {what} are {' and '.join(shapes)}; accepted: the same type and shape on all")


def pass_tensors(
    channel: TensorChannel, kind: str, outgoing: dict[int, Tensor], sources: Sequence[int]
) -> tuple[Tensor, ...]:
    """Send to each rank its tensor, of any shape, and return one of each source, or else a zero for the gradients.

    kind: one of those above. All workers call it in the same order. Raises RanksDiffer, PeerLost.
    """
    wanted = [torch.is_grad_enabled() and value.requires_grad for value in outgoing.values()]
    # what comes may want a gradient where nothing that is sent does
    anchor = torch.empty(0, requires_grad=torch.is_grad_enabled())
    way = _Way(channel, _KINDS.index(kind), list(outgoing), wanted, sources)
    found: tuple[Tensor, ...] = _Passing.apply(way, anchor, *outgoing.values())  # type: ignore[no-untyped-call]
    return found


class _Way:
    """Says who passes what to whom in one call of a layer. wanted: of each tensor sent, whether its gradient is."""

    def __init__(
        self, channel: TensorChannel, kind: int, to: Sequence[int], wanted: Sequence[bool], sources: Sequence[int]
    ) -> None:
        self.channel, self.kind, self.to, self.wanted, self.sources = channel, kind, to, wanted, sources
        self.wanted_back: list[bool] = []  # of each tensor that came

    def there(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Send these, and return what comes."""
        channel, own = self.channel, list[tuple[Tensor, bool]]()
        for rank, value, wanted in zip(self.to, values, self.wanted, strict=True):
            if rank == channel.rank:
                own.append((value.clone(), wanted))  # a layer behind this one may change it
            else:
                channel.send(value, rank, _FORWARD_TAG, self.kind + _WANTED * wanted)
        arrived = [own[0] if rank == channel.rank else self._from(rank, _FORWARD_TAG) for rank in self.sources]
        self.wanted_back = [wanted for _, wanted in arrived]
        return [value for value, _ in arrived]

    def back(self, gradients: Sequence[Tensor]) -> list[Tensor | None]:
        """Send the gradients of what came, and return those of what was sent."""
        channel, own = self.channel, list[Tensor]()
        for rank, gradient, wanted in zip(self.sources, gradients, self.wanted_back, strict=True):
            if rank == channel.rank:
                own.append(gradient)
            elif wanted:
                channel.send(gradient, rank, _BACKWARD_TAG, self.kind)
        found: list[Tensor | None] = []
        for rank, wanted in zip(self.to, self.wanted, strict=True):
            if not wanted:
                found.append(None)
            else:
                found.append(own[0] if rank == channel.rank else self._from(rank, _BACKWARD_TAG)[0])
        return found

    def _from(self, rank: int, tag: int) -> tuple[Tensor, bool]:
        value, about = self.channel.receive(rank, tag)
        if about % _WANTED != self.kind:
            raise RanksDiffer(
                f"worker {rank} is in {_KINDS[about % _WANTED]} where worker {self.channel.rank} is in "
                f"{_KINDS[self.kind]}; accepted: layers that communicate in the same order on all workers"
            )
        return value, about >= _WANTED


class _Passing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, way: _Way, _: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
        ctx.way = way
        arrived = way.there(values)
        if not way.sources:
            arrived = [torch.zeros((), device=values[0].device)]
        elsewhere = way.wanted_back if way.sources else [any(way.wanted)]
        ctx.mark_non_differentiable(*(value for value, wanted in zip(arrived, elsewhere, strict=True) if not wanted))
        return tuple(arrived)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        way: _Way = ctx.way
        return None, None, *way.back(gradients if way.sources else ())
