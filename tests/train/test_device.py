"""Which GPU is a worker's, by its place among those that it sees."""

from __future__ import annotations

import pytest
import torch

from volary.errors import SettingError
from volary.placement import Place
from volary.train.device import device_of


def place(local_rank: int, beside: int | None, *, own: bool = False) -> Place:
    return Place(
        launcher="x", rank=4, world_size=8, local_rank=local_rank, node=1, attempt=0, beside=beside, own_devices=own
    )


@pytest.fixture
def devices(monkeypatch):
    def found(count):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    return found


def test_the_workers_of_a_machine_share_out_its_devices_however_many_there_are_elsewhere(devices):
    devices(4)
    assert [str(device_of("auto", place(rank, 4))) for rank in range(4)] == [f"cuda:{rank}" for rank in range(4)]
    assert str(device_of("auto", place(0, None))) == "cpu", "it is not known how many of the 8 are here"


@pytest.mark.parametrize(("seen", "expected"), [(1, "cuda:0"), (2, "cuda:1"), (4, "cuda:3"), (0, "cpu")])
def test_a_worker_that_sees_devices_of_its_own_takes_one_of_them(devices, seen, expected):
    devices(seen)
    assert str(device_of("auto", place(3, 4, own=True))) == expected


def test_too_few_devices_are_refused_if_they_are_asked_for(devices):
    devices(1)
    with pytest.raises(SettingError, match=r"train.device is 'cuda' for 4 workers here, and 1 CUDA devices are found"):
        device_of("cuda", place(3, 4))
