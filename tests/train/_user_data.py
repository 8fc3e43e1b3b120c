"""Data of a user's own, as sessions of these tests name it: small sets, whole, spoilt and of differing sizes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from volary.errors import CorruptSample

RANK = os.environ.get("VOLARY_RANK", "0")
FEATURES, CLASSES = (6, 4)


def points(split: str, samples: int = 41) -> TensorDataset:
    """Made-up points; every third as many are for validation."""
    seed, count = (1, samples) if split == "train" else (2, samples // 3)
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, FEATURES, generator=generator)
    return TensorDataset(inputs, (inputs @ torch.ones(FEATURES, CLASSES).cumsum(1).sin()).argmax(1))


def points_of_classes(split: str, samples: int = 41) -> TensorDataset:
    """The same, with how many classes there are."""
    data = points(split, samples)
    data.classes = CLASSES  # type: ignore[attr-defined]
    return data


def small_images(split: str, samples: int = 44) -> TensorDataset:
    """The same as images of 2 x 3 values, with how many classes there are."""
    data = points_of_classes(split, samples)
    inputs, targets = data.tensors
    images = TensorDataset(inputs.view(-1, 1, 2, 3), targets)
    images.classes = CLASSES  # type: ignore[attr-defined]
    return images


def labelled_points(split: str, samples: int = 44) -> TensorDataset:
    """The same with labels, (4,) of 0 and 1, with how much each sample weighs in being drawn."""
    inputs, targets = points(split, samples).tensors
    data = TensorDataset(inputs, torch.nn.functional.one_hot(targets, CLASSES).float())
    data.classes, data.weights = CLASSES, torch.arange(1.0, len(data) + 1)  # type: ignore[attr-defined]
    return data


def spoilt_points(
    split: str, samples: int = 41, spoilt: tuple[int, ...] = (), value: float = float("nan")
) -> TensorDataset:
    """The same, with a value that is no number in some samples."""
    data = points(split, samples)
    data.tensors[0][spoilt] = value
    return data


class CorruptPoints(Dataset):
    """The same, sample by sample, of which some of the split `part` cannot be read."""

    def __init__(self, split: str, corrupt: tuple[int, ...] = (), part: str = "train", samples: int = 41) -> None:
        self.data = points(split, samples)
        self.corrupt = corrupt if split == part else ()

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if index in self.corrupt:
            raise CorruptSample(f"point {index} is torn")
        return self.data[index]


class Sequences(Dataset):
    """Sequences of points of which few positions count, in some not one; all are as long, or they `differ`."""

    def __init__(self, split: str, differ: bool = False, samples: int = 41) -> None:
        generator = torch.Generator().manual_seed(1 if split == "train" else 2)
        self.samples = []
        for number in range(samples):
            length = (1, 9, 2, 8, 4)[number % 5] if differ else 5
            inputs = torch.randn(length, FEATURES, generator=generator)
            targets = (inputs @ torch.ones(FEATURES, CLASSES).cumsum(1).sin()).argmax(1)
            targets[torch.rand(length, generator=generator) < (number % 4) / 3] = -100
            self.samples.append((inputs, targets))

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.samples[index]


class NothingCounts(Sequences):
    """The same, and no position of them counts."""

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        inputs, targets = self.samples[index]
        return inputs, torch.full_like(targets, -100)


class Uneven(Dataset):
    """Sequences of which 0, 5, 1 and 4 positions count, in turn; none does in every third four of them.

    spoilt: samples that have no numbers. evenly: in all others all positions count. The first feature says whose turn
    it is of `Scores`' layers.
    """

    def __init__(self, split: str, spoilt: tuple[int, ...] = (), evenly: bool = False) -> None:
        generator = torch.Generator().manual_seed(7)
        self.inputs = torch.randn(24, 5, FEATURES, generator=generator)
        self.targets = torch.randint(CLASSES, (24, 5), generator=generator)
        for number, target in enumerate(self.targets):
            target[0 if number // 4 % 3 == 2 else 5 if evenly else (0, 5, 1, 4)[number % 4] :] = -100
        self.inputs[:, :, 0] = (torch.arange(24) // 4 % 2).view(-1, 1)
        self.inputs[list(spoilt), :, 1] = torch.nan

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.inputs[index], self.targets[index]


class SeriesData(Dataset):
    """Series of a value at each step: five, or another number in splits that `differ`."""

    def __init__(self, split: str, differ: str = "") -> None:
        generator = torch.Generator().manual_seed(3)
        lengths = [(1, 9, 2, 8)[number % 4] if split in differ else 5 for number in range(12)]
        self.samples = [torch.rand(length, 3, generator=generator) for length in lengths]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.samples[index], self.samples[index].mean(1)


class Streamed(IterableDataset):
    """The same, one after the other. after: a file, which workers wait for before they look at the data."""

    def __init__(self, split: str, after: str = "") -> None:
        until = time.monotonic() + 30
        while after and "VOLARY_RANK" in os.environ and not Path(after).exists() and time.monotonic() < until:
            time.sleep(0.01)
        self.data = points(split)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(self.data)


class InShards:
    """The same as three streams of different lengths, and each pass in another order."""

    num_shards = 3

    def __init__(self, split: str) -> None:
        self.data, self.epoch = points(split), 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def shard(self, num_shards: int, index: int) -> Iterator[tuple[Tensor, Tensor]]:
        assert num_shards == 3
        numbers = [number for number in range(len(self.data)) if min(2, number % 5) == index]
        return (self.data[number] for number in (numbers[::-1] if self.epoch % 2 else numbers))


class LoggedPoints(Dataset):
    """The same, sample by sample; each worker of a run writes down which it was asked for.

    hold_after: so many; then it waits until there is a file `go` beside the log.
    """

    def __init__(self, split: str, log: str, samples: int, hold_after: int) -> None:
        self.left = hold_after
        self.data = points(split, samples)
        self.log = Path(log) / f"rank-{RANK}-process-{os.getpid()}"
        self.split = split

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if self.split == "train":
            self.left -= 1
            until = time.monotonic() + 30
            while self.left < 0 and not self.log.with_name("go").exists() and time.monotonic() < until:
                time.sleep(0.01)
            with self.log.open("a") as file:
                file.write(f"{index}\n")
        return self.data[index]
