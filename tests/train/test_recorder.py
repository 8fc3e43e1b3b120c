"""Measurements of a step: its time by phase, and its bytes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from train._training import OVERLAPPED, Trained, session, trained
from volary.run.database.traffic import Traffic
from volary.run.machine.usage import PROCESS
from volary.train.recording import recorder as recorder_module
from volary.train.recording.recorder import STEP_PHASES, Recorder
from volary.train.recording.usage import UsageSamples


def close(recorder: Recorder, *traffic: Traffic) -> Any:
    recorder.end_step(epoch=0.1, samples=3, loss=1.0, lr=0.1, traffic=traffic)
    return recorder.rows[-1]


def phases_of(row: Any) -> float:
    return float(sum(getattr(row, f"{phase}_s") for phase in STEP_PHASES))


def test_phases_sum_to_the_time_of_the_step_and_what_lies_between_steps_counts_for_none(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(recorder_module, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    recorder = Recorder(0)
    recorder.begin_step()
    for phase in (*STEP_PHASES[1:], "forward"):
        recorder.enter(phase)
        now[0] += 0.25
    row = close(recorder)
    assert (row.step_s, phases_of(row), row.forward_s) == (1.25, 1.25, 0.5)
    for phase in ("evaluate", "exchange", "checkpoint"):
        recorder.enter(phase)
        now[0] += 0.25
    recorder.begin_step()
    recorder.enter("forward")
    assert close(recorder).step_s == 0


def test_bytes_are_those_of_the_step():
    recorder, ring, broadcast = Recorder(0), Traffic("none", "ring", 10, 20, 30), Traffic("none", "broadcast", 1, 2, 3)
    rows = [close(recorder, ring), close(recorder, ring), close(recorder, ring, broadcast)]
    assert [(one.sent_bytes, one.received_bytes) for one in rows] == [(10, 20), (0, 0), (1, 2)]


def test_what_travels_by_each_codec_and_route_is_told_as_it_is_added():
    recorder = Recorder(0)
    close(recorder, Traffic("none", "ring", 10, 10, 20), Traffic("onebit", "to owners and back", 0, 0, 0))
    close(recorder, Traffic("none", "ring", 20, 20, 40), Traffic("onebit", "to owners and back", 1, 2, 96))
    rows = [["none", "ring", 20, 20, 40], ["onebit", "to owners and back", 1, 2, 96]]
    assert recorder.take()["events"] == [{"traffic": rows}]
    close(recorder, Traffic("none", "ring", 20, 20, 40), Traffic("onebit", "to owners and back", 2, 4, 192))
    assert recorder.take()["events"] == [{"traffic": [["onebit", "to owners and back", 1, 2, 96]]}]
    assert recorder.take()["events"] == []


def test_what_was_said_is_taken_once():
    recorder = Recorder(1)
    close(recorder)
    recorder.event("warning", text="x")
    recorder.metrics({"loss": 1.0})
    recorder.note(steps_planned=3)
    taken = recorder.take()
    assert [row[:2] for row in taken["rows"]] == [[1, 1]]
    assert taken["events"] == [
        {"event": "warning", "step": 1, "data": {"text": "x"}},
        {"metrics": {"loss": 1.0}, "step": 1},
        {"note": {"steps_planned": "3"}},
    ]
    assert recorder.take() == {"rows": [], "events": []}


STRATEGIES: dict[str, dict[str, Any]] = {"at once": {}, "overlapped": OVERLAPPED}


def measure(rank: int, world_size: int) -> dict[str, Trained]:
    often = {"every": "2 steps"}
    return {
        name: trained(
            rank,
            world_size,
            session("Exact", train={"steps": 6}, evaluate=often, checkpoint=often, strategy=strategy),
            name,
        )
        for name, strategy in STRATEGIES.items()
    }


def test_every_step_of_every_worker_is_measured(workers):
    for rank, everything in enumerate(workers(3, measure)):
        for name, found in everything.items():
            assert [row.step for row in found.rows] == [1, 2, 3, 4, 5, 6]
            # updates beside the step take none of its time
            phases = [phase for phase in STEP_PHASES if name == "at once" or phase != "optimizer"]
            for row in found.rows:
                assert row.rank == rank
                assert row.step_s == pytest.approx(phases_of(row))
                assert all(getattr(row, f"{phase}_s") > 0 for phase in phases if row.samples)
            ended = [row.ended_at for row in found.rows]
            assert sum(row.step_s for row in found.rows[1:]) < ended[-1] - ended[0]
            assert found.rows[-1].epoch == pytest.approx(1.2)
        assert {row.sent_bytes for row in everything["at once"].rows} == {0}
        # a ring's two phases: Patarasuk & Yuan 2009
        gradients = sum(parameter.nbytes for parameter in everything["overlapped"].parameters.values()) * 4 / 3
        beside = 2 * gradients + 6 * 300  # what all begin with, and votes and counts
        for direction in ("sent", "received"):
            total = sum(getattr(row, f"{direction}_bytes") for row in everything["overlapped"].rows)
            # what travels under the next step's forward is counted there
            assert 5 * gradients < total < 6 * gradients + beside


def test_the_driver_is_told_at_once_that_a_worker_has_started_and_of_its_first_steps_and_then_with_its_beats():
    recorder, told = Recorder(0), []
    recorder.hand_over = lambda: told.append((recorder.phase, recorder.step))
    for _ in range(9):
        recorder.begin_step()
        recorder.end_step(epoch=0.1, samples=1, loss=1.0, lr=0.1)
    assert told == [("data", 0), *(("between steps", step) for step in (1, 2, 4, 8))]


def test_what_a_worker_uses_is_recorded_however_soon_it_ends():
    recorder = Recorder(0)
    recorder.usage = UsageSamples(whole_machine=False)
    assert recorder.take()["events"] == [], "it has only just begun"
    (said,) = recorder.take(ending=True)["events"]
    assert {name for _, name, _ in said["usage"]} == set(PROCESS)
