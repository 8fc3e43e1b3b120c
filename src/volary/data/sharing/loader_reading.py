"""Reads batches of indices as a user's loader does: with its processes, `collate_fn` and memory, in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset, default_collate

from volary.data.sharing.among import kept


def reading(loader: Any, drawing: Iterable[Any], generator: torch.Generator | None) -> Iterable[Any]:
    """The batches of the indices that `drawing` gives, which the loader's processes ask for ahead if it has some.

    generator: in the place of the loader's, which its processes are seeded from.
    """
    dataset, collate = _read_by(loader)
    if not loader.num_workers and not loader.pin_memory:  # this process by itself, which costs less than a loader
        return _Here(dataset, collate, drawing, generator)
    more = kept(loader) | {"generator": generator, "in_order": True}
    return DataLoader(dataset, batch_sampler=drawing, collate_fn=_Collating(collate), **more)


@dataclass(frozen=True)
class _Collating:
    """Collates in a loader's process; makes nothing of no samples, which a process gets while nothing is to be read."""

    collate: Callable[[Any], Any]

    def __call__(self, samples: Any) -> Any:
        return self.collate(samples) if len(samples) else None


@dataclass(frozen=True)
class _Here:
    """Reads as a loader without processes does, but quicker."""

    dataset: Any
    collate: Callable[[Any], Any]
    drawing: Iterable[list[Any]]
    generator: torch.Generator | None

    def __iter__(self) -> Iterator[Any]:
        drawing = iter(self.drawing)
        # as a loader does, also one without workers: whatever is drawn afterwards is what it would be
        torch.empty((), dtype=torch.int64).random_(generator=self.generator)
        return map(self._read, drawing)

    def _read(self, indices: list[Any]) -> Any:
        dataset = self.dataset
        if hasattr(dataset, "__getitems__"):
            return self.collate(dataset.__getitems__(indices))
        return self.collate([dataset[index] for index in indices])


@dataclass(frozen=True)
class _Rows:
    """A data set that gives a batch at once: of tensors in memory the same, and quicker."""

    __getitems__: Callable[[list[int]], Any]

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])


def _read_by(loader: Any) -> tuple[Any, Callable[[Any], Any]]:
    """The samples that a loader reads, and the function that makes a batch of it."""
    dataset = loader.dataset
    if loader.num_workers or loader.collate_fn is not default_collate:
        return dataset, loader.collate_fn
    if type(dataset) is TensorDataset:
        return _Rows(lambda indices: _rows_of(dataset.tensors, indices)), _as_it_is
    if hasattr(dataset, "fetch") and hasattr(dataset, "input_shape"):  # of `volary.data.samples.Samples`
        return _Rows(lambda indices: list(dataset.fetch(torch.tensor(indices)))), _as_it_is
    return dataset, loader.collate_fn


def _rows_of(tensors: Sequence[torch.Tensor], indices: list[int]) -> list[torch.Tensor]:
    """The rows of each tensor, counted from its end where an index is negative."""
    chosen = torch.tensor(indices)
    if min(indices) < 0:
        chosen = torch.where(chosen < 0, chosen + len(tensors[0]), chosen)
    # not tensor[indices], which is many times slower with a list
    return [tensor.index_select(0, chosen.to(tensor.device)) for tensor in tensors]


def _as_it_is(batch: Any) -> Any:
    return batch
