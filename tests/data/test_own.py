"""A user's own data sets: map style, iterable, and what is neither."""

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from volary.data.datasets.user_source import UserSource, samples_of
from volary.data.feed import Feed
from volary.data.memory import InMemory
from volary.errors import DataError, SettingError
from volary.sharding.samples import SampleShare


class Squares(Dataset):
    classes = ("even", "odd")

    def __init__(self, split="train", count=10):
        self.count = count if split == "train" else 3

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.full((2,), float(index**2)), index % 2


class Counting(IterableDataset):
    def __init__(self, count=10):
        self.count, self.epoch = count, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return ((np.float32(i + 100 * self.epoch), i) for i in range(self.count))


class CountingWithLength(Counting):
    def __len__(self):
        return self.count


def source(factory, **arguments) -> UserSource:
    return UserSource(reference="my.module:Thing", load=lambda: factory, arguments=arguments)


def refused(look) -> str:
    with pytest.raises(DataError) as problem:
        look()
    return str(problem.value)


def test_map_style_data_set_is_stacked_and_knows_its_classes():
    samples = source(Squares, count=20).open("train")
    inputs, targets = samples.fetch(torch.tensor([3, 1]))
    assert inputs.tolist() == [[9.0, 9.0], [1.0, 1.0]]
    assert (targets.tolist(), targets.dtype) == ([1, 1], torch.int64)
    assert (len(samples), samples.classes, samples.input_shape, samples.input_dtype) == (20, 2, (2,), torch.float32)
    assert samples.fetch(torch.arange(0))[0].shape == (0, 2)


def test_split_is_handed_to_a_factory_that_takes_it():
    assert len(source(Squares).open("test")) == 3
    assert len(source(lambda **options: Squares(**options)).open("test")) == 3


def test_factory_without_split_has_nothing_for_validation():
    made = source(lambda: Squares())
    assert len(made.open("train")) == 10
    assert refused(lambda: made.open("test")) == (
        "my.module:Thing: takes no `split`, so there is no validation data to evaluate on; accepted: a callable with a "
        'parameter `split` ("train" or "test"), or the setting evaluate.every=never'
    )
    assert "is one data set, not a callable" in refused(lambda: source(Squares()).open("test"))
    assert len(source(Squares()).open("train")) == 10


def test_tensor_data_set_is_read_without_a_loop():
    samples = samples_of(TensorDataset(torch.rand(5, 3), torch.arange(5)), "mine")
    assert isinstance(samples, InMemory)
    assert samples.fetch(torch.tensor([4]))[1].tolist() == [4]


def test_samples_are_taken_as_they_are():
    samples = InMemory(torch.rand(5, 3), torch.arange(5))
    assert samples_of(samples, "mine") is samples


def test_numbers_and_arrays_become_tensors():
    pairs = [(0.5, True), (np.float32(1), 2)]
    inputs, targets = samples_of(pairs, "mine").fetch(torch.tensor([0, 1]))
    assert (inputs.tolist(), inputs.dtype) == ([0.5, 1.0], torch.float32)
    assert (targets.tolist(), targets.dtype) == ([1, 2], torch.int64)


def test_what_cannot_be_used_is_named():
    pair = "accepted: a pair (input, target), each a tensor, a numpy array or a number"
    assert refused(lambda: samples_of(3, "mine")) == (
        "mine: is a int; accepted: a data set with __getitem__ and __len__, or with __iter__"
    )
    assert refused(lambda: samples_of([], "mine")) == "mine: empty: its length is 0; accepted: at least one sample"
    assert refused(lambda: samples_of([1, 2], "mine")) == f"mine: sample 0 is a int; {pair}"
    assert refused(lambda: samples_of([("a", 2)], "mine")) == f"mine: sample 0 holds a str; {pair}"
    ragged = samples_of([(torch.zeros(2), 0), (torch.zeros(3), 0)], "mine")
    assert refused(lambda: ragged.fetch(torch.arange(2))) == (
        "mine: sample 1 is (3,) torch.float32, sample 0 is (2,) torch.float32; "
        "accepted: one shape and type (data.pad fills up the smaller ones)"
    )
    assert refused(lambda: source(lambda split: None).open("train")) == (
        "my.module:Thing: gave None for split 'train'; accepted: a data set"
    )


def feed_of(dataset, **settings) -> Feed:
    return Feed(samples_of(dataset, "mine"), 4, shuffle=False, **settings)


def test_workers_share_a_stream_without_loss_or_repetition():
    feeds = [feed_of(Counting(10), share=SampleShare(rank, 3)) for rank in range(3)]
    steps = [[next(feed) for feed in feeds] for _ in range(6)]
    shares = [[batch.targets.tolist() for batch in step] for step in steps]
    assert shares[:3] == [[[0, 3], [1], [2]], [[4, 7], [5], [6]], [[8], [9], []]]
    assert [[b.total for b in step] for step in steps[:3]] == [[4] * 3, [4] * 3, [2] * 3]
    assert [step[0].ends_epoch for step in steps] == [False, False, True] * 2
    assert shares[3:] == shares[:3]
    assert steps[3][0].inputs.tolist() == [100, 103]  # set_epoch was called


def test_stream_that_ends_with_a_whole_batch_ends_its_epoch_there():
    feed = feed_of(Counting(8))
    assert [(b.count, b.ends_epoch, b.epoch) for b, _ in zip(feed, range(3), strict=False)] == [
        (4, False, 0),
        (4, True, 0),
        (4, False, 1),
    ]


@pytest.mark.parametrize("steps", range(7))
def test_stream_goes_on_where_its_state_was_taken(steps):
    feed = feed_of(Counting(10))
    for _ in range(steps):
        next(feed)
    resumed = [feed_of(Counting(10), share=SampleShare(rank, 2)) for rank in range(2)]
    for other in resumed:
        other.restore(feed.state())
    expected = [next(feed) for _ in range(4)]
    for batch in expected:
        shares = [next(other) for other in resumed]
        assert sorted(i for share in shares for i in share.inputs.tolist()) == batch.inputs.tolist()
        assert {share.ends_epoch for share in shares} == {batch.ends_epoch}


def test_stream_with_length_counts_epochs_and_one_without_asks_for_steps():
    assert feed_of(CountingWithLength(10)).steps_in(2) == 6
    with pytest.raises(SettingError) as problem:
        feed_of(Counting(10)).steps_in(2)
    assert str(problem.value) == (
        "train.epochs cannot be counted in steps: the data is a stream without a length; accepted: train.steps"
    )


def test_stream_is_not_shuffled_and_says_so():
    with pytest.raises(SettingError, match=r"data.shuffle is true, but mine is a stream, which comes in its own order"):
        Feed(samples_of(Counting(), "mine"), 4)


def test_empty_and_one_way_streams_are_refused():
    assert refused(lambda: feed_of(Counting(0))) == ("mine: empty: no sample in epoch 0; accepted: at least one sample")
    feed = feed_of(iter([(1.0, 1)]))
    next(feed)
    assert refused(lambda: next(feed)) == (
        "mine: empty: no sample in epoch 1; accepted: an iterable that starts anew with every iter()"
    )


def test_stream_shorter_than_the_position_is_refused():
    feed = feed_of(Counting(10))
    next(feed), next(feed)
    shorter = feed_of(Counting(5))
    shorter.restore(feed.state())
    assert refused(lambda: next(shorter)) == "mine: ended after 5 samples; the run had read 8"


def test_an_error_of_a_data_set_says_which_sample_was_read():
    class Broken:
        def __len__(self) -> int:
            return 9

        def __getitem__(self, index: int) -> tuple[float, int]:
            if index == 7:
                raise ValueError("no such picture")
            return 0.0, 1

    samples = samples_of(Broken(), "mine:Broken")
    with pytest.raises(ValueError, match="no such picture") as failed:
        samples.fetch(torch.tensor([3, 7, 8]))
    assert failed.value.__notes__ == ["while sample 7 of mine:Broken was read"]
