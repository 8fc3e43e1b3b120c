"""Chooses how data is shared out: by indices, as a stream, by batches, or not at all if it is sharded already."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset

from volary.data.datasets.stream_shards import IterableInShards
from volary.data.sharing.among import Among, SharedData
from volary.data.sharing.batches import SharedBatches
from volary.data.sharing.indexed import SharedIndices
from volary.data.sharing.iterable_dataset import SharedIterableDataset, stream_of
from volary.data.sharing.own_sharding import SharedAlready
from volary.data.sharing.stream_in_shards import SharedStreamInShards
from volary.errors import BadInput, DataError, SettingError


def shared(data: Any, batch_size: int | None, shuffle: bool | None, among: Among) -> SharedData:
    """Share out what `worker.feed` was given. Raises BadInput, DataError and SettingError if that is impossible."""
    name = type(data).__name__
    if isinstance(data, DataLoader):
        if batch_size is not None or shuffle is not None:
            raise BadInput("worker.feed was given a DataLoader and more; accepted: the loader alone, which says it all")
        return _of_loader(data, among)
    indexed = not isinstance(data, IterableDataset) and hasattr(data, "__getitem__") and hasattr(data, "__len__")
    in_shards = not indexed and isinstance(data, IterableInShards)
    if not indexed and not in_shards and not hasattr(data, "__iter__"):
        raise DataError(
            f"worker.feed was given a {name}; accepted: a DataLoader, a data set with __getitem__ and __len__, or an "
            "iterable"
        )
    if batch_size is None:
        if in_shards or isinstance(data, Dataset):
            raise SettingError(f"worker.feed({name}) needs batch_size: the samples of a step over all workers")
        return SharedBatches(data, among)
    if batch_size < 1:
        raise SettingError(f"batch_size is {batch_size}; accepted: 1 or more")
    if indexed:
        return _of_loader(DataLoader(data, batch_size, shuffle=shuffle is not False), among)
    if shuffle:
        raise SettingError(f"shuffle is true, but {name} is a stream, which comes in its own order; accepted: false")
    taken = data if in_shards or isinstance(data, IterableDataset) else stream_of(data)
    return _of_loader(DataLoader(taken, batch_size), among)


def _of_loader(loader: DataLoader[Any], among: Among) -> SharedData:
    if any(isinstance(one, DistributedSampler) for one in (loader.sampler, loader.batch_sampler)):
        return SharedAlready(loader, among)
    indexed = hasattr(loader.dataset, "__getitem__") and hasattr(loader.dataset, "__len__")
    if isinstance(loader.dataset, IterableInShards) and not indexed and loader.batch_size and not loader.num_workers:
        return SharedStreamInShards(loader, among)
    if isinstance(loader.dataset, IterableDataset):
        return SharedIterableDataset(loader, among) if loader.batch_size else SharedBatches(loader, among)
    if loader.batch_sampler is None:
        return SharedBatches(loader, among)
    return SharedIndices(loader, among)
