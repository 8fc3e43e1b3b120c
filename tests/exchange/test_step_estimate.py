"""The estimate of a worker's compute in a step is measured by its own thread's work."""

from __future__ import annotations

import time

import torch
from torch import nn

from volary.exchange.choice.rows import estimated

WORK_S, WAITED_S = 0.2, 0.6


def test_what_others_do_with_the_core_meanwhile_does_not_count():
    values, began_s = torch.rand(64, 64), time.thread_time()
    with estimated(nn.Linear(2, 2), samples=4) as estimate:
        while time.thread_time() < began_s + WORK_S:
            values @ values
        time.sleep(WAITED_S)  # as if the core were another's
    assert 0.5 * WORK_S < estimate.compute_s < WORK_S + WAITED_S / 2
    assert estimate.of(8).compute_s == 2 * estimate.compute_s


def test_on_several_threads_it_is_the_time_that_passes():
    torch.set_num_threads(2)
    with estimated(nn.Linear(2, 2), samples=1) as estimate:
        time.sleep(WORK_S)
    assert estimate.compute_s >= WORK_S
