"""Runs that are stopped, or fail, end too; and what was checkpointed goes on with other workers and servers."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

import pytest

from simulation._models import MODELS, keeps_what_all_promise
from simulation._run import Run
from simulation._seeds import every

models = pytest.mark.parametrize("model", MODELS)
SCHEDULES = 12


@models
def test_a_stopped_run_ends_and_its_samples_are_used_once_when_it_goes_on(model):
    def stopped_and_resumed(seed):
        case, keeps = MODELS[model](Random(seed))
        first = Run(replace(case, befall=lambda faults: (case.befall(faults), faults.somebody_stops_it())), seed)
        first.play()
        if first.roster.outcome == "finished":
            return
        assert first.roster.outcome == "stopped", first.failure
        if first.history.closings:  # else there is nothing that could be gone on from
            assert first.history.newest_checkpoint.state["closings"] == first.history.newest
        goes_on(first, case, keeps)

    every(range(SCHEDULES), stopped_and_resumed)


@models
def test_a_run_whose_driver_dies_goes_on_from_any_of_its_checkpoints(model):
    def died_and_resumed(seed):
        case, keeps = MODELS[model](Random(seed))
        first = Run(case, seed)
        first.play()
        goes_on(first, case, keeps)

    every(range(SCHEDULES), died_and_resumed)


@models
def test_a_server_without_a_replica_is_named_when_it_dies(model):
    def dies(seed):
        case, _ = MODELS[model](Random(seed))
        run = Run(replace(case, replicas=1, befall=lambda faults: faults.a_server_dies()), seed)
        run.play()
        dead = [f"server {number}" for number, server in run.servers.items() if server.outcome != "finished"]
        assert run.roster.outcome == "finished" or any(run.roster.failure.startswith(name) for name in dead)

    every(range(SCHEDULES), dies)


@models
def test_a_worker_or_server_that_is_stopped_for_ever_near_the_end_does_not_keep_the_run_from_ending(model):
    def stopped(seed):
        case, keeps = MODELS[model](Random(seed))
        plans = []
        run = Run(replace(case, befall=lambda faults: (plans.append(faults), faults.somebody_stops_for_ever())), seed)
        run.play()
        if run.failure:  # it cannot go on without who was stopped, and says so
            who = re.sub(r"^replica \d+ has lost ", "", run.failure).replace("rank", "worker")
            assert who.startswith(plans[0].stopped), run.failure
        else:
            keeps_what_all_promise(run)
            keeps(run)

    every(range(4 * SCHEDULES), stopped)


def goes_on(first, case, keeps):
    """Resume from a checkpoint of a run; together the two learn from each sample once."""
    if not first.history.saved:
        return
    saved = first.world.random.choice([*first.history.checkpoints.values()])
    then = Run(case, first.world.seed + 1, first, saved)
    then.play()
    assert then.roster.outcome == "finished", then.failure
    keeps(then)
    keeps_what_all_promise(then, learnt_before=first.history.samples(saved.state["closings"]))
