"""The slowest worker is named with its cause, once, and what happens to all of them is told from that."""

from __future__ import annotations

import math
from typing import Any

import pytest

from volary.driver.watching.stragglers import STEPS, Stragglers
from volary.run.database.journal import StepRow

NOTHING = {"data": 0.001, "forward": 0.02, "backward": 0.03, "optimizer": 0.004, "exchange": 0.01, "between": 0.001}


class Pace:
    """Workers that take steps, and what is said of them."""

    def __init__(self, workers: int, *, lock_step: bool = True, linked: bool = False) -> None:
        self.workers, self.lock_step, self.linked = workers, lock_step, linked
        self.stragglers = Stragglers(lock_step=lock_step)
        self.step, self.clocks = 0, [0.0] * workers
        self.said: list[tuple[int, int | None, dict[str, Any]]] = []

    def steps(self, count: int, slow: int | None = None, **times: float) -> None:
        """All take so many steps; the parts of `slow` take longer, or those of all."""
        for _ in range(count):
            self.step += 1
            parts = [dict(NOTHING) | (times if slow in (rank, None) else {}) for rank in range(self.workers)]
            if self.lock_step:  # who is early waits
                own = [sum(one.values()) for one in parts]
                for one, took in zip(parts, own, strict=True):
                    one["exchange"] += max(own) - took
            for rank, one in enumerate(parts):
                self.clocks[rank] += sum(one.values())
                self.stragglers.did(rank, [row(self.step, rank, self.clocks[rank], one)])
            news = self.stragglers.look(range(self.workers), now=float(self.step) * 2, linked=self.linked)
            if news is not None:
                self.said.append((self.step, *news))


def row(step: int, rank: int, ended_at: float, parts: dict[str, float]) -> StepRow:
    times = {f"{part}_s": took_s for part, took_s in parts.items() if part != "between"}
    counted = {"epoch": 0.0, "samples": 1, "loss": math.nan, "lr": 0.1, "sent_bytes": 0, "received_bytes": 0}
    return StepRow(step=step, rank=rank, ended_at=ended_at, step_s=sum(times.values()), **counted, **times)


def test_even_workers_are_not_compared_to_death():
    pace = Pace(4)
    pace.steps(100)
    assert pace.said == []


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("data", "its data takes"),
        ("forward", "its forward takes"),
        ("backward", "its backward takes"),
        ("optimizer", "its optimizer takes"),
        ("between", "what it does between steps takes"),
    ],
)
def test_slow_worker_is_named_within_twenty_steps_with_what_it_is_slow_in_and_once(part, words):
    pace = Pace(4)
    pace.steps(30)
    pace.steps(60, slow=2, **{part: 0.161})
    ((step, rank, data),) = pace.said
    assert step <= 30 + STEPS
    assert (rank, data["cause"]) == (2, "between steps" if part == "between" else part)
    assert data["reason"].startswith("rank 2 is the slowest: others wait ")
    usual = f"{1000 * NOTHING[part]:.3g} ms"
    assert data["reason"].endswith(f" of each step for it; {words} 161 ms where the others take {usual}")


def test_worker_that_is_slow_from_the_start_is_named_too():
    pace = Pace(2)
    pace.steps(STEPS, slow=1, forward=1.5)
    ((_, rank, data),) = pace.said
    assert rank == 1
    assert data["share"] == pytest.approx(0.95, abs=0.02)
    assert data["reason"] == (
        "rank 1 is the slowest: others wait 96% of each step for it; its forward takes 1.5 s where the others take "
        "20 ms"
    )


def test_single_slow_steps_make_nobody_slow():
    pace = Pace(2)
    for _ in range(10):
        pace.steps(9)
        pace.steps(1, slow=1, forward=25.0)
    assert pace.said == []


def test_change_of_cause_or_worker_and_the_end_of_it_are_told():
    pace = Pace(3)
    pace.steps(30, slow=1, forward=0.2)
    pace.steps(30, slow=1, data=0.2)
    pace.steps(30, slow=0, data=0.2)
    pace.steps(30)
    assert [(rank, data.get("cause", "over")) for _, rank, data in pace.said if rank is not None] == [
        (1, "forward"),
        (1, "data"),
        (0, "data"),
        (0, "over"),
    ]
    assert pace.said[-1][2] == {"reason": "rank 0 is no longer slower than the others", "over": True}


def test_link_that_becomes_slow_is_told_against_what_it_was_at_first_and_blames_no_worker():
    pace = Pace(2, linked=True)
    pace.steps(40)
    pace.steps(40, exchange=0.5)
    pace.steps(40)
    (step, rank, data), (_, nobody, over) = pace.said
    assert (rank, nobody, data["cause"]) == (None, None, "exchange")
    assert step <= 40 + STEPS
    assert data["reason"] == (
        "the exchange takes all workers 500 ms of each step where it took 10 ms at first: a link has become slow"
    )
    assert over["over"]


def test_exchange_of_one_machine_that_becomes_slow_has_no_link():
    pace = Pace(2)
    pace.steps(40)
    pace.steps(40, exchange=0.5)
    assert pace.said == []


def test_workers_of_a_busy_machine_that_are_slow_in_turns_are_not_told():
    pace = Pace(3)
    pace.steps(STEPS)
    for turn in range(40):
        pace.steps(9, slow=turn % 3, forward=0.2)
    assert pace.said == []


def test_worker_with_a_slow_link_to_the_servers_is_named_where_nobody_waits_for_it():
    pace = Pace(3, lock_step=False)
    pace.steps(40, slow=2, exchange=0.5)
    ((_, rank, data),) = pace.said
    assert (rank, data["cause"]) == (2, "exchange")
    assert data["reason"] == (
        "rank 2 is the slowest: it waits for the servers 500 ms where the others take 10 ms: its link is slow"
    )


def test_slow_worker_of_a_run_in_which_nobody_waits_is_named_by_its_own_time():
    pace = Pace(3, lock_step=False)
    pace.steps(40, slow=2, forward=0.2)
    assert [(rank, data["cause"]) for _, rank, data in pace.said] == [(2, "forward")]


def test_worker_that_has_gone_is_not_compared():
    pace = Pace(2)
    pace.steps(30)
    pace.workers = 1
    pace.steps(30, forward=0.5)
    assert pace.said == []


def test_rows_that_are_no_numbers_are_passed_over():
    stragglers = Stragglers(lock_step=True)
    for rank in (0, 1):
        stragglers.did(rank, [row(step, rank, math.nan, dict(NOTHING)) for step in range(30)])
    assert stragglers.look([0, 1], 1.0) is None
