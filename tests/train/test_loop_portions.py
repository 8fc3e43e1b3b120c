"""Portions of a user's loader: its processes read ahead what is expected, and what comes out depends on no process."""

from __future__ import annotations

import multiprocessing
import os
import random
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from volary.data.reader import SamplePlaces
from volary.data.sharing.among import Among
from volary.data.sharing.shared import shared
from volary.sharding.samples import SampleShare
from volary.train.own.served.portions import LoopPortions

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on machines with fewer cores
SAMPLES, BATCH = 23, 4
WAIT_S = 60
SHARES = [
    SamplePlaces(0, start, min(start + 2, SAMPLES)) for start in range(0, SAMPLES, BATCH)
]  # of one of two workers
CPU = torch.device("cpu")


class Drawn(Dataset[Any]):
    """A sample's number, what it draws from each global generator, and the process that reads it.

    read: set once sample `signals` is read. fails: samples that cannot be.
    """

    def __init__(self, signals: int = -1, fails: tuple[int, ...] = ()) -> None:
        self.read, self.signals, self.fails = multiprocessing.Event(), signals, fails

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, list[float], int]:
        if index == self.signals:
            self.read.set()
        if index in self.fails:
            raise ValueError(f"sample {index} is damaged")
        return index, [float(torch.rand(())), random.random(), float(np.random.rand())], os.getpid()


class AtOnce(Drawn):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices[:1]] + [self[index] for index in indices[1:]]


def portions_of(data: Any = None, **more: Any) -> LoopPortions:
    loader = DataLoader(Drawn() if data is None else data, BATCH, **more)
    found = LoopPortions(shared(loader, None, None, Among(SampleShare(0, 2), lambda plan: plan)), CPU)
    found.begin(bytes(torch.Generator().manual_seed(5).get_state().tolist()))
    return found


def read(portions: LoopPortions, spans: list[SamplePlaces], ahead: int = 1) -> tuple[list[Any], list[Any], set[int]]:
    """Samples by portion, what was drawn, and by which processes; each time the next `ahead` are announced."""
    samples, drawn, processes = [], [], set()
    with closing(portions):
        for place, span in enumerate(spans):
            portions.expect(spans[place : place + 1 + ahead])
            numbers, generators, process = portions.read(span).parts[0].inputs
            samples.append(numbers.tolist())
            drawn.append(torch.stack(generators).tolist())
            processes |= set(process.tolist())
    return samples, drawn, processes


STOLEN = [*SHARES[:2], SamplePlaces(0, 22, 23), SamplePlaces(0, 18, 20), *SHARES[2:], SamplePlaces(1, 0, 2), SHARES[1]]


@pytest.mark.parametrize("spans", [SHARES, [*SHARES, *(one._replace(epoch=1) for one in SHARES)], STOLEN])
@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_processes_read_what_this_process_would(spans, ahead):
    expected, _, here = read(portions_of(shuffle=True), spans)
    samples, _, processes = read(portions_of(shuffle=True, num_workers=2), spans, ahead)
    assert samples == expected
    assert here == {os.getpid()}
    assert os.getpid() not in processes


def test_both_processes_of_a_loader_read():
    _, _, processes = read(portions_of(num_workers=2), SHARES)
    assert len(processes) == 2


@pytest.mark.parametrize("kind", [Drawn, AtOnce])
def test_what_a_portion_draws_depends_on_no_process_and_on_none_before_it(kind):
    _, whole, _ = read(portions_of(kind(), num_workers=2), SHARES)
    _, resumed, _ = read(portions_of(kind(), num_workers=3), SHARES[2:])
    assert resumed == whole[2:]
    assert len({number for portion in whole for one in portion for number in one}) == 3 * 12, "none twice"


def test_random_numbers_of_the_program_are_not_drawn():
    before = torch.get_rng_state()
    read(portions_of(shuffle=True, num_workers=1), SHARES)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("announced", [1, 2])
def test_portions_are_read_before_they_are_asked_for(announced):
    """The announced samples, and beyond them this worker's share of the next batches."""
    data = Drawn(signals=SHARES[announced + 1].start)
    with closing(portions_of(data, num_workers=1, prefetch_factor=4)) as portions:
        portions.expect(SHARES[:announced])
        portions.read(SHARES[0])
        assert data.read.wait(WAIT_S)


def test_what_nobody_reads_may_fail_and_what_is_read_fails_there():
    with closing(portions_of(Drawn(fails=(8, 20)), num_workers=2)) as portions:
        for span in (SHARES[0], SHARES[1]):
            portions.expect([span])
            portions.read(span)
        with pytest.raises(ValueError, match="sample 20 is damaged"):
            portions.read(SHARES[5])
        assert portions.read(SHARES[4]).parts[0].count == 2


def began(number: int) -> None:
    """Called in each process of a loader."""
    get_worker_info().dataset.signals = number + 100


class Told(Drawn):
    def __getitem__(self, index: int) -> Any:
        return index, self.signals


def test_worker_init_fn_persistent_workers_and_a_batch_without_samples_are_as_of_the_loader():
    made = portions_of(Told(), num_workers=2, worker_init_fn=began, persistent_workers=True, prefetch_factor=1)
    with closing(made) as portions:
        for epoch in range(2):
            assert set(portions.read(SamplePlaces(epoch, 0, 2)).parts[0].inputs[1].tolist()) < {100, 101}
        empty = portions.read(SamplePlaces(1, 4, 4))
        assert (empty.parts[0].count, len(empty.parts[0].inputs[0])) == (0, 0)
