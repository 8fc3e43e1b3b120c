"""The schedules come to where promises are at stake: what models allow does happen, and so does what befalls them."""

from __future__ import annotations

from random import Random

import pytest

from simulation._models import MODELS
from simulation._run import Run
from volary.consistency import ROOM

ELASTIC = [model for model in ROOM.names() if model in MODELS and ROOM.load(model)().elastic]


def test_readers_run_ahead_as_far_as_ssp_lets_them():
    def furthest(run):
        staleness, used = run.case.model.staleness, {*run.history.used()}
        unseen = [
            read.clock - each.clock
            for read in run.history.reads
            for _, value in read.slices.values()
            for each in used.difference(value)
        ]
        return staleness > 1 and max(unseen) == staleness

    some("ssp", furthest)


def test_readers_wait_for_others():
    some("ssp", lambda run: any(wait.closed < wait.needed for wait in run.history.waits))


def test_shards_of_async_are_at_clocks_of_their_own():
    def apart(run):
        return any(len({version for version, _ in read.slices.values()}) > 1 for read in run.history.reads)

    some("async", apart)


def test_contributions_come_too_late():
    some("backup", lambda run: run.history.dropped)


@pytest.mark.parametrize("model", ELASTIC)
def test_workers_die_and_others_join_and_the_run_goes_on(model):
    def survived(run):
        died = [rank for rank, worker in run.workers.items() if not worker.process.up]
        joined = {each.worker for each in run.history.used() if each.worker >= run.workers_count}
        return died and joined and run.roster.outcome == "finished"

    some(model, survived)


@pytest.mark.parametrize("model", ELASTIC)
def test_all_workers_die_while_another_starts_and_the_run_goes_on_with_that_one(model):
    def survived(run):
        stayed = [worker for worker in run.workers.values() if worker.process.up]
        return min(worker.rank for worker in stayed) >= run.workers_count and run.roster.outcome == "finished"

    some(model, survived)


def test_a_rank_of_a_replica_dies_and_replicas_that_are_whole_go_on():
    def survived(run):
        died = [rank for rank, worker in run.workers.items() if not worker.process.up]
        return died and run.roster.outcome == "finished"

    some("cut", survived)


@pytest.mark.parametrize("model", MODELS)
def test_servers_die_and_their_partners_go_on(model):
    def survived(run):
        return any(not server.process.up for server in run.servers.values()) and run.roster.outcome == "finished"

    some(model, survived)


def some(model, comes_to):
    """In one of the first schedules, at least."""
    for seed in range(100):
        case, _ = MODELS[model](Random(seed))
        run = Run(case, seed)
        run.play()
        if comes_to(run):
            return
    pytest.fail("in none of 100 schedules")
