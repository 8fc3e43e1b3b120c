"""The order of an epoch: arithmetic alone, the same on every worker.

Samples in memory have one permutation of all of them. Samples in storage are permuted in windows of blocks. A block is
neighbours, which storage reads together. The blocks are permuted, and so are the samples of every `WINDOW_BLOCKS`
blocks that follow one another then. A sample may come anywhere in the epoch, the first batch needs only the first
blocks, and any position is found without going through those before it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Generator, Tensor

from volary.data.batching.padding import lengths_of
from volary.data.stored import Stored

if TYPE_CHECKING:
    from volary.data.samples import Samples

WINDOW_BATCHES = 64  # in which samples of like length are looked for
WINDOW_BLOCKS = 64  # of 10 classes that are stored one after the other, 99 of 100 windows have samples of all


class Order(Protocol):
    """The samples of an epoch one after the other: `order[start:end]` are the indices (end - start,) int64."""

    def __getitem__(self, span: slice) -> Tensor: ...


def epoch_order(samples: int, seed: int, epoch: int, shuffle: bool) -> Tensor:
    """The indices 0 to samples - 1 (samples,) int64: a permutation that seed and epoch decide, or as they come."""
    if not shuffle:
        return torch.arange(samples)
    return torch.randperm(samples, generator=seeded(seed, epoch))


def in_streams(samples: int, count: int) -> Tensor:
    """The indices (samples,) int64 of `count` streams, stretches of neighbours: the next of each stream in turn.

    A batch of `count` samples has one of each stream, and the next batch those that follow. Fewer samples than there
    are streams are left over, and come last.
    """
    length = samples // count
    inside = torch.arange(count * length).view(count, length).t().flatten()
    return torch.cat([inside, torch.arange(count * length, samples)])


def order_of(
    samples: Samples,
    seed: int,
    epoch: int,
    shuffle: bool,
    batch_size: int,
    weights: Tensor | None = None,
    *,
    streams: bool = False,
) -> Order:
    """The order of an epoch of `samples`: in windows of blocks if they are stored in blocks.

    Of samples that say how long they are, those of like length are in one batch of `batch_size`. weights (n,): they are
    drawn by these, and not shuffled. streams: a batch has the next sample of each of `batch_size` streams.
    """
    block = samples.block if isinstance(samples, Stored) else 1
    if streams:
        return in_streams(len(samples), batch_size)
    if not shuffle:
        return epoch_order(len(samples), seed, epoch, shuffle)
    order: Order
    if weights is not None:
        order = drawn(weights, seed, epoch)
    elif block > 1:
        order = Windows(len(samples), block, seed, epoch)
    else:
        order = epoch_order(len(samples), seed, epoch, shuffle)
    lengths = lengths_of(samples)
    return order if lengths is None else Bucketed(order, lengths, batch_size, seed, epoch)


def drawn(weights: Tensor, seed: int, epoch: int) -> Tensor:
    """As many indices (n,) int64 as there are weights (n,), drawn with replacement, each in proportion to its own."""
    ends = weights.to(torch.float64).cumsum(0)
    places = torch.rand(len(weights), dtype=torch.float64, generator=seeded(seed, epoch, "drawn")) * ends[-1]
    # a product may be rounded up to the very end, where those of weight 0 may be
    return torch.searchsorted(ends, places, right=True).clamp(max=int(weights.nonzero()[-1]))


class Windows:
    """Windows of blocks, permuted. The samples that fill no block come in some window, which seed and epoch decide."""

    def __init__(self, samples: int, block: int, seed: int, epoch: int) -> None:
        whole, self._rest = divmod(samples, block)
        self._samples, self._block, self._seed, self._epoch = samples, block, seed, epoch
        self._blocks = torch.randperm(whole, generator=seeded(seed, epoch, "blocks"))
        # a window is as likely as it is long: the last one may be short
        beside = torch.randint(max(1, whole), (), generator=seeded(seed, epoch, "rest"))
        self._with_rest = int(beside) // WINDOW_BLOCKS
        self._newest: dict[int, Tensor] = {}

    def __getitem__(self, span: slice) -> Tensor:
        start, end, _ = span.indices(self._samples)
        pieces: list[Tensor] = []
        while start < end:
            number = self._window_at(start)
            begin, window = self._begin(number), self._window(number)
            pieces.append(window[start - begin : end - begin])
            start = begin + window.shape[0]
        return pieces[0] if len(pieces) == 1 else torch.cat([torch.empty(0, dtype=torch.int64), *pieces])

    def _window_at(self, place: int) -> int:
        size = WINDOW_BLOCKS * self._block
        if place < self._begin(self._with_rest):
            return place // size
        return max(self._with_rest, (place - self._rest) // size)

    def _begin(self, number: int) -> int:
        return number * WINDOW_BLOCKS * self._block + (self._rest if number > self._with_rest else 0)

    def _window(self, number: int) -> Tensor:
        if number not in self._newest:
            if len(self._newest) > 1:  # what is read now, and what is read ahead
                del self._newest[min(self._newest)]
            blocks = self._blocks[number * WINDOW_BLOCKS : (number + 1) * WINDOW_BLOCKS]
            inside = (blocks.unsqueeze(1) * self._block + torch.arange(self._block)).view(-1)
            if number == self._with_rest:
                inside = torch.cat([inside, torch.arange(self._samples - self._rest, self._samples)])
            shuffled = torch.randperm(len(inside), generator=seeded(self._seed, self._epoch, "window", number))
            # not inside[shuffled]: threads of torch would help, and keep a core busy for a while afterwards
            self._newest[number] = inside.index_select(0, shuffled)
        return self._newest[number]


class Bucketed:
    """Another order, of which in every `WINDOW_BATCHES` batches the samples are sorted by length and dealt out anew.

    The batches of such a window are permuted. Samples that fill no batch come last in the epoch, whatever their length.
    lengths: of each sample, (n,).
    """

    def __init__(self, order: Order, lengths: Tensor, batch_size: int, seed: int, epoch: int) -> None:
        self._order, self._lengths, self._batch_size = order, lengths, batch_size
        self._seed, self._epoch = seed, epoch
        self._newest: dict[int, Tensor] = {}

    def __getitem__(self, span: slice) -> Tensor:
        start, end, _ = span.indices(len(self._lengths))
        size = WINDOW_BATCHES * self._batch_size
        pieces = [torch.empty(0, dtype=torch.int64)]
        for number in range(start // size, -(-end // size)):
            begin = number * size
            pieces.append(self._window(number)[max(0, start - begin) : end - begin])
        return torch.cat(pieces)

    def _window(self, number: int) -> Tensor:
        if number not in self._newest:
            if len(self._newest) > 1:  # what is read now, and what is read ahead
                del self._newest[min(self._newest)]
            size = WINDOW_BATCHES * self._batch_size
            inside = self._order[number * size : (number + 1) * size]
            whole = inside[: len(inside) // self._batch_size * self._batch_size]
            batches = whole[self._lengths[whole].argsort(stable=True)].view(-1, self._batch_size)
            shuffled = torch.randperm(len(batches), generator=seeded(self._seed, self._epoch, "bucket", number))
            self._newest[number] = torch.cat([batches[shuffled].view(-1), inside[len(whole) :]])
        return self._newest[number]


def seeded(*words: int | str) -> Generator:
    """A generator that `words` decide; other words give another sequence."""
    # hashed: seed + epoch would give seed 1 in epoch 1 the order of seed 2 in epoch 0, and torch uses 32 bits alone
    digest = hashlib.sha256("/".join(map(str, words)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:4]))
