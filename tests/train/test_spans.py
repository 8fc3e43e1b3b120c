"""Which steps are recorded in full, and what a recorded step keeps."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from train._training import made, session
from volary.session.values.period import Period
from volary.train.recording.recorder import STEP_PHASES, Recorder
from volary.train.recording.spans import MOST_WAITING, Spans


def recorded(spans: Spans, first: int, last: int) -> list[int]:
    """Which of an attempt's steps `first` to `last` keep a span."""
    for step in range(first, last + 1):
        spans.begin(step)
        spans.add(step, "exchange", "a", 0.0, 1.0)
    return [span[0] for span in spans.take()]


def following(period: str, steps_per_epoch: int = 7) -> Spans:
    spans = Spans()
    spans.follow(Period.parse(period), steps_per_epoch)
    return spans


def test_steps_2_to_11_and_then_two_at_every_hundredth_are_recorded_unless_told_otherwise():
    assert recorded(Spans(), 1, 250) == [*range(2, 12), 100, 101, 200, 201]


def test_a_resumed_life_records_its_own_first_steps():
    assert recorded(Spans(), 151, 250) == [*range(152, 162), 200, 201]


@pytest.mark.parametrize(
    ("period", "steps"),
    [("30 steps", [*range(2, 12), 30, 31, 60, 61]), ("3 epochs", [*range(2, 12), 21, 22, 42, 43, 63, 64])],
)
def test_two_steps_are_recorded_whenever_the_period_ends(period, steps):
    assert recorded(following(period), 1, 70) == steps


def test_every_step_can_be_recorded_the_first_too():
    assert recorded(following("1 step"), 1, 30) == list(range(1, 31))


def test_never_keeps_nothing_not_even_what_came_before_it_was_known():
    spans = Spans()
    spans.add(0, "broadcast", "0.weight", 0.0, 1.0)
    spans.follow(Period.parse("never"), 7)
    spans.add(0, "broadcast", "0.bias", 0.0, 1.0)
    assert recorded(spans, 1, 250) == []
    assert not spans.recording


def test_the_broadcast_is_kept_although_the_first_step_is_not():
    spans = Spans()
    assert spans.recording
    spans.add(0, "broadcast", "0.weight", 0.0, 1.0)
    spans.begin(1)
    assert spans.recording
    spans.add(1, "broadcast", "0.bias", 0.0, 1.0)
    spans.add(1, "exchange", "0.bias", 0.0, 1.0)
    assert [span[2] for span in spans.take()] == ["0.weight", "0.bias"]


def test_a_span_may_come_while_the_next_step_runs_and_one_of_a_step_that_is_not_recorded_is_left_out():
    spans = Spans()
    for step in range(1, 13):
        spans.begin(step)
    assert spans.recording
    spans.add(11, "update", "late", 0.0, 1.0)
    spans.add(12, "phase", "forward", 0.0, 1.0)
    for step in range(13, 30):
        spans.begin(step)
    assert not spans.recording
    spans.add(11, "update", "far too late", 0.0, 1.0)
    assert [span[2] for span in spans.take()] == ["late"]


def test_threads_may_add_while_another_takes():
    spans, taken = following("1 step"), []
    spans.begin(1)

    def add(name: str) -> None:
        for number in range(2000):
            spans.add(1, "exchange", name, number, number + 1)

    threads = [threading.Thread(target=add, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        taken += spans.take()
    taken += spans.take()
    assert sorted(span[2] for span in taken) == sorted("abcd" * 2000)
    assert not spans.take()


def test_of_more_than_a_beat_can_carry_the_newest_are_kept():
    spans = following("1 step")
    spans.begin(1)
    for number in range(MOST_WAITING + 5):
        spans.add(1, "exchange", str(number), 0.0, 1.0)
    taken = spans.take()
    assert (len(taken), taken[0][2]) == (MOST_WAITING, "5")


def test_times_are_told_on_the_machines_clock():
    spans = following("1 step")
    spans.begin(1)
    before = time.time()
    spans.add(1, "exchange", "a", time.perf_counter(), time.perf_counter() + 2, 77)
    after = time.time()
    ((step, kind, name, start_s, end_s, size_bytes),) = spans.take()
    assert (step, kind, name, size_bytes) == (1, "exchange", "a", 77)
    assert before - 0.01 < start_s < after + 0.01
    assert end_s - start_s == pytest.approx(2, abs=0.01)


def step(recorder: Recorder) -> Any:
    recorder.begin_step()
    for phase in STEP_PHASES[1:]:
        recorder.enter(phase)
    recorder.end_step(epoch=0.1, samples=3, loss=1.0, lr=0.1)
    recorder.enter("exchange")  # between steps: replicas are compared
    recorder.enter("checkpoint")
    return recorder.rows[-1]


def test_the_phases_of_a_recorded_step_are_spans_that_follow_each_other_and_make_up_its_times():
    recorder = Recorder(0)
    rows = [step(recorder) for _ in range(20)]
    (said,) = recorder.take()["events"]
    for row in rows:
        phases = [span for span in said["spans"] if span[0] == row.step]
        if not 2 <= row.step <= 11:
            assert phases == []
            continue
        assert [span[1:3] for span in phases] == [["phase", name] for name in STEP_PHASES]
        assert [span[3] for span in phases[1:]] == [span[4] for span in phases[:-1]]
        for _, _, name, start_s, end_s, _ in phases:
            assert end_s - start_s == pytest.approx(getattr(row, f"{name}_s"), abs=1e-6)
    assert recorder.take()["events"] == []


def test_the_period_of_a_session_is_followed(tmp_path):
    never = made(0, 1, session("Exact", train={"steps": 9, "trace": "never"}), tmp_path / "a").recorder
    epochs = made(0, 1, session("Exact", train={"steps": 9, "trace": "3 epochs"}), tmp_path / "b").recorder
    assert recorded(never.spans, 1, 20) == []
    per_epoch = 5
    assert recorded(epochs.spans, 1, 16) == [*range(2, 12), 3 * per_epoch, 3 * per_epoch + 1]
