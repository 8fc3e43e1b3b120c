"""What is measured of a step: its time by phase, and its bytes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from train._training import Trained, made, session, trained
from volary.train.recorder import STEP_PHASES, Recorder


def close(recorder: Recorder) -> Any:
    recorder.end_step(epoch=0.1, samples=3, loss=1.0, lr=0.1, sent_bytes=10, received_bytes=20)
    return recorder.rows[-1]


def phases_of(row: Any) -> float:
    return float(sum(getattr(row, f"{phase}_s") for phase in STEP_PHASES))


def test_phases_sum_to_the_time_of_the_step_and_what_lies_between_steps_counts_for_none():
    recorder = Recorder(0)
    recorder.begin_step()
    began = time.perf_counter()
    for phase in (*STEP_PHASES[1:], "forward"):
        recorder.enter(phase)
        time.sleep(0.002)
    row = close(recorder)
    took = time.perf_counter() - began
    assert row.step_s == pytest.approx(phases_of(row))
    assert row.step_s == pytest.approx(took, abs=2e-3)
    assert row.forward_s > 0.004
    for phase in ("evaluate", "exchange", "checkpoint"):
        recorder.enter(phase)
        time.sleep(0.002)
    recorder.begin_step()
    recorder.enter("forward")
    assert close(recorder).step_s < 0.002


def test_bytes_are_those_of_the_step():
    recorder = Recorder(0)
    assert (close(recorder).sent_bytes, close(recorder).sent_bytes) == (10, 0)


def test_what_was_said_is_taken_once():
    recorder = Recorder(1)
    close(recorder)
    recorder.event("warning", text="x")
    recorder.metrics({"loss": 1.0})
    recorder.note(steps_planned=3)
    taken = recorder.take()
    assert [row[:2] for row in taken["rows"]] == [[1, 1]]
    assert taken["said"] == [
        {"event": "warning", "step": 1, "data": {"text": "x"}},
        {"metrics": {"loss": 1.0}, "step": 1},
        {"note": {"steps_planned": "3"}},
    ]
    assert recorder.take() == {"rows": [], "said": []}


def measure(rank: int, world_size: int) -> tuple[Trained, int]:
    often, wire = {"every": "2 steps"}, {"exchange": {"name": "allreduce", "route": "torch"}}
    one = session("Exact", train={"steps": 6}, evaluate=often, checkpoint=often, strategy=wire)
    it = made(rank, world_size, one)
    return trained(rank, world_size, one, "c"), sum(bucket.contribution.nbytes for bucket in it.strategy.buckets.all)


def test_every_step_of_every_worker_is_measured(workers):
    for rank, (found, gradient_bytes) in enumerate(workers(3, measure)):
        assert [row.step for row in found.rows] == [1, 2, 3, 4, 5, 6]
        for row in found.rows:
            assert row.rank == rank
            assert row.step_s == pytest.approx(phases_of(row))
            assert all(getattr(row, f"{phase}_s") > 0 for phase in STEP_PHASES if row.samples)
            # a ring's two phases: Patarasuk & Yuan 2009
            assert row.sent_bytes == row.received_bytes == pytest.approx(gradient_bytes * 4 / 3, abs=2)
        ended = [row.ended_at for row in found.rows]
        assert sum(row.step_s for row in found.rows[1:]) < ended[-1] - ended[0]
        assert found.rows[-1].epoch == pytest.approx(1.2)
