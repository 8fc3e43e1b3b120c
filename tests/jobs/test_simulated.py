"""A thousand queues of random runs, on machines in memory, whose runner is killed anywhere."""

from __future__ import annotations

import msgspec
import pytest

from jobs._lab import schedule
from volary.jobs import runner
from volary.jobs.schedule import Decisions, decide


def test_no_run_is_lost_started_twice_overtaken_or_given_what_is_not_there():
    for seed in range(100):
        schedule(seed)


@pytest.mark.slow  # more of the same
def test_nor_in_any_of_nine_hundred_more():
    for seed in range(100, 1000):
        schedule(seed)


def _never_gives_way(*asked, **named) -> Decisions:
    decided = decide(*asked, **named)
    decided.stop = {run: why for run, why in decided.stop.items() if why in ("held", "cancelled")}
    return decided


def _gives_all_cores(entries, capacity, *asked, **named) -> Decisions:
    decided = decide(entries, capacity, *asked, **named)
    decided.start = [
        msgspec.structs.replace(one, given=msgspec.structs.replace(one.given, cores=capacity.cores))
        for one in decided.start
    ]
    return decided


def _puts_them_on_a_host(entries, capacity, *asked, **named) -> Decisions:
    decided = decide(entries, capacity, *asked, **named)
    decided.start = [
        msgspec.structs.replace(one, given=msgspec.structs.replace(one.given, host=capacity.hosts[0].name))
        if capacity.hosts
        else one
        for one in decided.start
    ]
    return decided


def _starts_the_last(*asked, **named) -> Decisions:
    decided = decide(*asked, **named)
    decided.start = decided.start[1:]
    return decided


@pytest.mark.parametrize("mistaken", [_never_gives_way, _gives_all_cores, _starts_the_last, _puts_them_on_a_host])
def test_a_mistake_in_the_schedule_is_found(mistaken, monkeypatch):
    monkeypatch.setattr(runner, "decide", mistaken)
    with pytest.raises(AssertionError):
        for seed in range(100):
            schedule(seed)


def test_a_run_that_is_started_before_it_is_written_down_is_found(monkeypatch):
    def careless(self, decided, moment):
        self._machinery.start(decided)
        self._table.change(decided.run, lambda _: msgspec.structs.replace(decided, boot=moment.boot))

    monkeypatch.setattr(runner.QueueRunner, "_start", careless)
    with pytest.raises(AssertionError):
        for seed in range(100):
            schedule(seed)
