"""Data sets as they are published, where they lie beside the checkout."""

from pathlib import Path

import pytest
import torch

from volary.data.feed import Feed
from volary.data.sources.idx import Idx
from volary.data.sources.images import Images
from volary.data.sources.text import Text

DATA = Path(__file__).parents[4] / "shared" / "data"


@pytest.fixture(autouse=True)
def data_is_there():
    if not DATA.is_dir():
        pytest.skip("no data sets in ../shared/data beside the checkout")


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_mnist_and_fashion_mnist_are_read_whole(name):
    source = Idx(folder=str(DATA / name))
    source.check()
    for split, count in (("train", 60_000), ("test", 10_000)):
        samples = source.open(split)
        assert (len(samples), samples.classes, samples.input_shape) == (count, 10, (1, 28, 28))
    batch = next(Feed(source.open("train"), 64))
    assert (batch.inputs.shape, batch.inputs.dtype) == ((64, 1, 28, 28), torch.float32)


def test_cifar_10_is_read_from_its_tar():
    source = Images(folder=str(DATA / "cifar10"), train="test")  # the small part twice: quicker
    source.check()
    samples = source.open("test")
    assert (len(samples), samples.classes, samples.input_shape) == (10_000, 10, (3, 32, 32))
    assert samples.targets.bincount().tolist() == [1000] * 10
    inputs, targets = samples.fetch(torch.tensor([0, 9999]))
    assert (inputs.shape, targets.tolist()) == ((2, 3, 32, 32), [0, 9])


def test_tiny_shakespeare_has_65_characters():
    source = Text(path=str(DATA / "tiny-shakespeare" / "input.txt"))
    source.check()
    samples = source.open("train")
    assert samples.classes == 65
    inputs, _ = samples.fetch(torch.tensor([0]))
    assert "".join(samples.vocabulary[i] for i in inputs[0]).startswith("First Citizen:\n")
