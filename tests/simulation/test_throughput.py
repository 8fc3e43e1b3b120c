"""A slow worker costs the others time, simulated time: the models keep their reason to be."""

from __future__ import annotations

import pytest

from simulation._run import Case, Run
from volary.consistency.backup import Backup
from volary.consistency.ssp import Ssp


@pytest.mark.parametrize("seed", range(5))
def test_a_worker_that_is_four_times_slower_costs_backup_less_than_a_tenth(seed):
    assert throughput(Backup(k=3), 4.0, seed) > 0.9 * throughput(Backup(k=3), 1.0, seed)


def test_without_a_backup_it_costs_more_than_half():
    assert throughput(Ssp(staleness=0), 4.0, seed=0) < 0.5 * throughput(Ssp(staleness=0), 1.0, seed=0)


def throughput(model, slowness, seed):
    """Samples that updates were made of, in a second, by four workers one of which is slower; all take steady steps."""
    run = Run(Case(model=model, workers=4, sizes=(64, 8), epochs=5, compute_s=0.2), seed)
    run.world.about = lambda mean: mean
    for worker in run.workers.values():
        worker.slow = 1.0
    run.workers[3].slow = slowness
    return run.play().closings[-1].samples / run.world.now
