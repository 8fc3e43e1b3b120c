"""Records that say which they are, in a pipeline that forked processes decode from the second batch on."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from data.loading._digits import Digits
from volary.data.loading import choice, pipeline
from volary.data.loading.pipeline import Pipeline
from volary.data.loading.scale import Scale
from volary.data.records.records import hashed


class Numbered:
    """Records that say which they are."""

    block, remote = 4, False
    descriptors: tuple[int, ...] = ()

    def __init__(self, count: int, corrupt: frozenset[int] = frozenset()) -> None:
        self.count, self.corrupt = count, corrupt

    def __len__(self) -> int:
        return self.count

    def name(self, index: int) -> str:
        return f"record {index}"

    def fingerprint(self) -> None: ...

    def at_hand(self, indices) -> bool:
        return True

    def expect(self, indices) -> None: ...

    def announce(self, indices) -> bool:
        return self.remote

    def forked(self):
        return partial(map, self.read)

    def read(self, index: int) -> bytes:
        return b"" if index in self.corrupt else index.to_bytes(2)


@pytest.fixture(autouse=True)
def always(monkeypatch) -> None:
    """However few samples there are, and from the second batch on, however slowly threads end."""
    monkeypatch.setattr(choice, "WORTH_S", 0.0)
    monkeypatch.setattr(pipeline, "_SOON_S", 60.0)


def opened(count: int, corrupt: frozenset[int] = frozenset(), **settings) -> Pipeline:
    return Pipeline(Numbered(count, corrupt), torch.arange(count), None, Digits(), Scale(1.0, 0.0), **settings)


def values(inputs: torch.Tensor) -> list[int]:
    inputs = inputs.permute(0, 3, 1, 2).float()
    return (inputs[:, 0, 0, 0] * 256 + inputs[:, 0, 0, 1]).long().tolist()


def pids(samples: Pipeline) -> list[int]:
    forked = samples._forked
    assert forked is not None
    assert forked._processes is not None
    return forked._processes.pids


class InStore(Numbered):
    """As if they came from a store."""

    remote = True

    def fingerprint(self) -> str:
        return hashed("numbers", str(self.count))

    def at_hand(self, indices) -> bool:
        return False
