"""`worker.feed` takes data of several kinds, and gives each worker its share."""

from __future__ import annotations

import collections
from itertools import islice
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from volary.data.datasets.user_source import samples_of
from volary.data.feed import Feed
from volary.data.sharing import indexed
from volary.data.sharing.among import Among
from volary.data.sharing.shared import shared
from volary.errors import VolaryError
from volary.sharding.samples import UNDIVIDED, SampleShare

Pair = collections.namedtuple("Pair", "name values")


class Texts(Dataset):
    """Samples of every kind in one: a nested dictionary, text, numbers, a named tuple."""

    def __init__(self, samples: int = 11) -> None:
        self.samples = samples
        self.epochs: list[int] = []

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> dict[str, Any]:
        words = torch.full((index % 3 + 1,), index)
        return {"words": words, "label": index, "of": {"text": f"text {index}"}, "pair": Pair(str(index), index / 2)}

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)


class Counting(IterableDataset):
    def __init__(self, samples: int) -> None:
        self.samples, self.first = samples, 0

    def set_epoch(self, epoch: int) -> None:
        self.first = 100 * epoch

    def __iter__(self):
        return iter(range(self.first, self.first + self.samples))


class Endless(Sampler):
    def __iter__(self):
        return iter(lambda: 0, 1)


def padded(samples: list[dict[str, Any]]) -> dict[str, Any]:
    words = torch.nn.utils.rnn.pad_sequence([sample["words"] for sample in samples], batch_first=True)
    return {"words": words, "label": torch.tensor([sample["label"] for sample in samples])}


def numbers(samples: int) -> TensorDataset:
    return TensorDataset(torch.arange(samples))


def parts(data: Any, world: int = 2, epoch: int = 0, **more: Any) -> list[list[Any]]:
    """Each worker's parts of an epoch. data: what it feeds, or a function that makes it for a rank."""
    found = []
    for rank in range(world):
        own = data(rank) if callable(data) else data
        among = Among(SampleShare(rank, world), lambda batches: batches)
        found.append(list(shared(own, more.get("batch_size"), more.get("shuffle"), among).epoch(epoch)))
    return found


def values(of: list[list[Any]]) -> list[list[list[int]]]:
    """By worker and step the samples."""
    return [[part.batch[0].tolist() for part in own] for own in of]


def refused(data: Any, world: int = 2, **more: Any) -> str:
    with pytest.raises(VolaryError) as raised:
        parts(data, world, **more)
    return str(raised.value)


def test_a_loader_is_shared_out_by_samples_and_its_batch_size_is_that_of_all_workers():
    first, second = values(parts(DataLoader(numbers(10), batch_size=4)))
    assert first == [[0, 2], [4, 6], [8, 9]]
    assert second == [[1, 3], [5, 7], []]


def test_no_worker_gets_a_single_sample_where_full_batches_have_two_for_each():
    for data in (DataLoader(numbers(203), batch_size=20), DataLoader(Counting(203), batch_size=20)):
        last = [own[-1] for own in parts(data)]
        assert [(part.samples, part.total, part.ends_epoch) for part in last] == [(3, 3, True), (0, 3, True)]
        lengths = [len(part.batch[0] if isinstance(part.batch, list) else part.batch) for part in last]
        assert lengths == [3, 0]
    assert [own[-1].samples for own in parts(DataLoader(numbers(5), batch_size=3))] == [1, 1]


def test_a_loader_that_is_not_shuffled_has_the_shares_of_a_session():
    data = numbers(23)
    found = [parts(DataLoader(data, 4), 3, epoch) for epoch in range(2)]
    for rank in range(3):
        samples = samples_of(TensorDataset(data.tensors[0], data.tensors[0]), "d")
        feed = Feed(samples, 4, share=SampleShare(rank, 3), shuffle=False)
        for own in (found[0][rank], found[1][rank]):
            for part in own:
                batch = next(feed)
                assert part.batch[0].tolist() == batch.inputs.tolist()[: batch.count]
                assert (part.samples, part.total, part.ends_epoch) == (batch.count, batch.total, batch.ends_epoch)


class Drawing(Sampler):
    """Draws from the generator of all, as it goes."""

    def __len__(self) -> int:
        return 9

    def __iter__(self):
        return (int(torch.randint(9, ())) for _ in range(9))


class DrawnBatches(Sampler):
    """Draws from the generator of all, before a loader does."""

    def __len__(self) -> int:
        return 3

    def __iter__(self):
        return iter(torch.randperm(9).view(3, 3).tolist())


def split() -> Any:
    return torch.utils.data.random_split(numbers(12), [9, 3])[0]


LOADERS = {
    "shuffled": lambda data: DataLoader(data, 4, shuffle=True),
    "dropping the last": lambda data: DataLoader(data, 4, shuffle=True, drop_last=True),
    "with a generator": lambda data: DataLoader(data, 4, shuffle=True, generator=torch.Generator().manual_seed(5)),
    "replaced": lambda data: DataLoader(data, 4, sampler=RandomSampler(data, replacement=True, num_samples=11)),
    "more than once": lambda data: DataLoader(data, 4, sampler=RandomSampler(data, num_samples=20)),
    "weighted": lambda data: DataLoader(data, 4, sampler=WeightedRandomSampler([1.0, 2.0, 3.0] * 3, 10)),
    "of a subset": lambda data: DataLoader(data, 4, sampler=SubsetRandomSampler([1, 3, 5, 7, 8])),
    "by batches": lambda data: DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 4, False)),
    "drawn as it goes": lambda data: DataLoader(data, 4, sampler=Drawing()),
    "drawn at once": lambda data: DataLoader(data, batch_sampler=DrawnBatches()),
    "split": lambda _: DataLoader(split(), 4, shuffle=True),
    "read by processes": lambda data: DataLoader(data, 4, shuffle=True, num_workers=1),
    "as it is": lambda data: DataLoader(data, 4),
}


def drawn(make: Any, seed: int, *, fed: bool) -> tuple[list[Any], torch.Tensor]:
    """Three epochs, with other random numbers between the batches; and what is drawn after them."""
    torch.manual_seed(seed)
    loader, found = make(numbers(9)), []
    own = shared(loader, None, None, Among(UNDIVIDED))
    for epoch in range(3):
        for batch in (part.batch for part in own.epoch(epoch)) if fed else loader:
            found.append(batch[0].tolist())
            torch.rand(3)
    return found, torch.rand(1)


@pytest.mark.parametrize("make", LOADERS.values(), ids=LOADERS)
def test_the_order_is_what_the_loader_draws_without_volary_and_so_is_what_follows(make):
    for seed in (1, 2):
        batches, after = drawn(make, seed, fed=False)
        found, then = drawn(make, seed, fed=True)
        assert found == batches
        assert torch.equal(then, after)


def test_batches_are_what_the_loader_makes_of_them_whatever_their_structure():
    collated = DataLoader(Texts(), batch_size=4, collate_fn=padded)
    assert [part.batch["words"].shape for part in parts(collated)[1]] == [(2, 2), (2, 3), (0, 3)]
    plain = DataLoader(TextsOfOneLength(), batch_size=4, drop_last=True)
    (first, *_), (second, *rest) = parts(plain)
    assert first.batch["of"] == {"text": ["text 0", "text 2"]}
    assert second.batch["pair"].name == ("1", "3")
    assert second.batch["pair"].values.tolist() == [0.5, 1.5]
    assert len(rest) == 1, "drop_last"


class TextsOfOneLength(Texts):
    def __getitem__(self, index: int) -> dict[str, Any]:
        return super().__getitem__(index) | {"words": torch.tensor([index])}


def test_reading_processes_read_this_workers_share_alone_and_stay_for_the_next_epoch():
    loader = DataLoader(numbers(10), batch_size=4, num_workers=1, persistent_workers=True, prefetch_factor=3)
    own = shared(loader, None, None, Among(SampleShare(1, 2), lambda batches: batches))
    for left_early in (True, False, False):
        seen = []
        for part in own.epoch(0):
            seen.append((part.batch[0].tolist(), part.samples, part.ends_epoch))
            if left_early:
                break
        assert seen == [([1, 3], 2, False), ([5, 7], 2, False), ([], 0, True)][: len(seen)]
    own._reader.close()


def test_what_any_sampler_draws_is_shared_out_and_it_is_told_the_epoch():
    drawn = [[3, 3, 1], [0], [2, 4, 5]]
    first, second = values(parts(DataLoader(numbers(6), batch_sampler=drawn)))
    assert (first, second) == ([[3, 1], [0], [2, 5]], [[3], [], [4]])
    from_the_end = DataLoader(numbers(6), batch_size=3, sampler=[-1, 0, -6, 4])
    assert values(parts(from_the_end, world=1)) == [[[5, 0, 0], [4]]]
    torch.manual_seed(1)
    weighted = DataLoader(numbers(6), batch_size=2, sampler=WeightedRandomSampler([0, 0, 1, 0, 1, 0], 8))
    assert all({index for batch in own for index in batch} <= {2, 4} for own in values(parts(weighted)))
    texts = Texts()
    assert len(parts(DataLoader(texts, batch_size=4, collate_fn=padded), epoch=7)[0]) == 3
    assert texts.epochs == [7, 7]


def test_a_generator_of_the_scripts_own_draws_the_order_that_it_draws_without_volary():
    def loader(_: int = 0) -> DataLoader:
        return DataLoader(numbers(9), 3, shuffle=True, generator=torch.Generator().manual_seed(5))

    alone = [batch[0].tolist() for batch in loader()]
    assert values(parts(loader, world=1)) == [alone]


def test_a_sampler_that_goes_on_for_longer_than_anybody_trains_is_drawn_as_it_is_needed():
    data = numbers(9)
    endless = RandomSampler(data, replacement=True, num_samples=10**10, generator=torch.Generator().manual_seed(5))
    among = Among(SampleShare(1, 2), lambda batches: batches)
    feeding = shared(DataLoader(data, 4, sampler=endless), None, None, among)
    some = list(islice(feeding.epoch(0), 5))
    assert [(part.samples, part.total, part.ends_epoch) for part in some] == [(2, 4, False)] * 5


def test_batches_that_are_drawn_in_portions_are_those_that_rank_0_draws_at_once(monkeypatch):
    def drawn(how: Any) -> list[Any]:
        torch.manual_seed(1)
        return parts(DataLoader(numbers(22), batch_size=4, **how))[0]

    for how in ({"sampler": WeightedRandomSampler([1] * 22, 22)}, {"shuffle": True}, {"shuffle": False}):
        monkeypatch.setattr(indexed, "PORTION", 1024)
        at_once = drawn(how)
        for portion in (1, 2, 3, 6):
            monkeypatch.setattr(indexed, "PORTION", portion)
            found = drawn(how)
            assert [part.batch[0].tolist() for part in found] == [part.batch[0].tolist() for part in at_once]
            assert [part.ends_epoch for part in found] == [False] * 5 + [True]


def test_batches_of_a_sample_leave_all_workers_but_one_without():
    for data in (DataLoader(numbers(3)), DataLoader(Counting(3)), [torch.tensor([n]) for n in range(3)]):
        found = parts(data, world=3)
        assert [[part.samples for part in own] for own in found] == [[1] * 3, [0] * 3, [0] * 3]
        rows = [[len(part.batch[0] if isinstance(part.batch, list) else part.batch) for part in own] for own in found]
        assert rows == [[1] * 3, [0] * 3, [0] * 3]
    assert [[part.samples for part in own] for own in parts(numbers(1), batch_size=4)] == [[1], [0]]


def test_a_batch_without_samples_has_the_structure_of_any_other_and_no_row():
    *_, last = parts(DataLoader(Texts(9), batch_size=4, collate_fn=padded))[1]
    assert (last.samples, last.batch["words"].shape, last.batch["label"].shape) == (0, (0, 3), (0,))
    *_, last = parts(DataLoader(TextsOfOneLength(9), batch_size=4))[1]
    assert (last.batch["of"], last.batch["pair"].name, len(last.batch["pair"].values)) == ({"text": []}, (), 0)
    behind = DataLoader(Texts(9), batch_size=4, collate_fn=lambda samples: padded(samples)["words"].T)
    assert parts(behind)[1][-1].batch.shape == (3, 0), "the samples are its second dimension"
    whole = parts(DataLoader(Texts(9), batch_size=4, collate_fn=lambda samples: str(len(samples))))
    assert [(part.batch, part.foreign) for part in whole[1]] == [("2", False), ("2", False), ("2", True)]


def test_streams_and_plain_iterables_are_read_by_all_and_shared_by_samples():
    for data, more in ((DataLoader(Counting(7), batch_size=4), {}), (iter_anew(range(7)), {"batch_size": 4})):
        found = parts(data, **more)
        own = [[part.batch.tolist() for part in each] for each in found]
        assert own == [[[0, 2], [4, 5, 6]], [[1, 3], []]]
        assert [part.total for part in found[1]] == [4, 3]
    assert parts(DataLoader(Counting(7), batch_size=4), epoch=2)[0][0].batch.tolist() == [200, 202]


class iter_anew:  # noqa: N801
    def __init__(self, values: Any) -> None:
        self.values = values

    def __iter__(self):
        return iter(self.values)


def test_batches_that_are_made_already_are_shared_by_their_rows():
    batches = [{"x": torch.arange(4).view(4, 1), "text": list("abcd"), "scale": 2.0}, {"x": torch.tensor([[9]])}]
    first, second = parts(batches)
    assert first[0].batch["x"].tolist() == [[0], [2]]
    assert (second[0].batch["text"], second[0].batch["scale"]) == (["b", "d"], 2.0)
    assert [(part.samples, part.total) for part in second] == [(2, 4), (0, 1)]
    assert second[1].batch["x"].shape == (0, 1)


def test_a_distributed_sampler_keeps_its_sharding_and_is_told_the_epoch():
    def loader(rank: int, replicas: int = 2) -> DataLoader:
        sampler = DistributedSampler(numbers(9), replicas, rank, shuffle=False)
        return DataLoader(numbers(9), batch_size=2, sampler=sampler)

    found = parts(loader)
    assert values(found) == [[[0, 2], [4, 6], [8]], [[1, 3], [5, 7], [0]]]
    assert [(part.samples, part.total) for part in found[0]] == [(2, 4), (2, 4), (1, 2)]
    assert refused(lambda rank: loader(rank, 3), world=2).startswith(
        "the DistributedSampler shares among 3 as rank 0, and this is rank 0 of 2 workers; accepted: num_replicas="
    )


def test_len_data_set_and_steps_are_the_loaders():
    among = Among(SampleShare(0, 2), lambda batches: batches)
    one = shared(DataLoader(numbers(10), batch_size=4), None, None, among)
    assert (one.steps, len(one.loader.dataset)) == (3, 10)
    assert shared(DataLoader(Counting(7), 4), None, None, among).steps is None


def test_what_cannot_be_shared_out_is_one_sentence():
    loader = DataLoader(numbers(10), batch_size=4)
    assert refused(loader, batch_size=4) == (
        "worker.feed was given a DataLoader and more; accepted: the loader alone, which says it all"
    )
    assert refused(3) == (
        "worker.feed was given a int; accepted: a DataLoader, a data set with __getitem__ and __len__, or an iterable"
    )
    assert refused(numbers(10)) == (
        "worker.feed(TensorDataset) needs batch_size: the samples of a step over all workers"
    )
    assert refused(DataLoader(numbers(4), batch_size=2, sampler=Endless())) == (
        "worker.feed cannot share out what Endless draws, as it does not say how much that is; accepted: a sampler "
        "with __len__, or an IterableDataset"
    )
    assert refused([{"x": 1}]) == (
        "worker.feed cannot share out a dict, as nothing in it says how many samples it has; accepted: batches with a "
        "tensor or a list in them, or samples and batch_size"
    )
    assert refused(iter([]), batch_size=2) == ("worker.feed found no sample in epoch 0; accepted: at least one sample")
    assert refused(Counting(4), batch_size=2, shuffle=True) == (
        "shuffle is true, but Counting is a stream, which comes in its own order; accepted: false"
    )
