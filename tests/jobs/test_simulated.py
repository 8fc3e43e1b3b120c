"""Queues of random runs, on machines in memory, whose runner is killed anywhere."""

from __future__ import annotations

import msgspec
import pytest

from jobs._lab import Lab, schedule
from volary.jobs import runner
from volary.jobs.runner import after_end
from volary.jobs.schedule import Decisions, decide


def test_no_run_is_lost_started_twice_overtaken_or_given_what_is_not_there():
    for seed in range(100):
        schedule(seed)


@pytest.mark.slow  # more of the same
def test_nor_in_any_of_a_thousand_more():
    for seed in range(100, 1100):
        schedule(seed)


@pytest.mark.slow  # a schedule for each call
@pytest.mark.parametrize("seed", [0, 1])
def test_nor_wherever_the_runner_is_killed_once(seed):
    calls = schedule(seed, killed_in=0).calls
    for call in range(1, calls + 1):
        schedule(seed, killed_in=call)


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


def _forgets_memory(entries, capacity, *asked, **named) -> Decisions:
    return decide(entries, msgspec.structs.replace(capacity, memory_bytes=1 << 40), *asked, **named)


def _gives_the_first_gpus(entries, capacity, *asked, **named) -> Decisions:
    decided = decide(entries, capacity, *asked, **named)
    decided.start = [
        msgspec.structs.replace(
            one, given=msgspec.structs.replace(one.given, gpus=capacity.gpus[: one.demand.gpus], host="")
        )
        for one in decided.start
    ]
    return decided


@pytest.mark.parametrize(
    "mistaken",
    [
        _never_gives_way,
        _gives_all_cores,
        _starts_the_last,
        _puts_them_on_a_host,
        _forgets_memory,
        _gives_the_first_gpus,
    ],
)
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


def _loses_who_gave_way(entry, how, boot):
    return None if how == "stopped" else after_end(entry, how, boot)


def _loses_who_has_not_begun(entry, how, boot):
    return None if how == "not begun" else after_end(entry, how, boot)


def _tries_without_end(entry, how, boot):
    again = after_end(msgspec.structs.replace(entry, losses=max(1, entry.losses)), how, boot)
    return again and msgspec.structs.replace(again, losses=entry.losses)


@pytest.mark.parametrize("mistaken", [_loses_who_gave_way, _loses_who_has_not_begun, _tries_without_end])
def test_a_mistake_in_what_comes_after_an_end_is_found(mistaken, monkeypatch):
    monkeypatch.setattr(runner, "after_end", mistaken)
    with pytest.raises(AssertionError):
        for seed in range(100):
            schedule(seed)


def test_a_runner_that_does_not_see_who_is_alive_is_found(monkeypatch):
    monkeypatch.setattr(Lab, "is_alive", lambda *_: False)
    with pytest.raises(AssertionError, match="started twice"):
        for seed in range(100):
            schedule(seed)
