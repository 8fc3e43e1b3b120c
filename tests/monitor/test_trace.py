"""Spans as a timeline that keeps the rules of the trace event format, and as medians of what travelled."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volary.monitor.trace import TRACKS, events, journeys, to_json
from volary.run.database.spans import Span

AT = 1_700_000_000.0
KINDS = [kind for kind in TRACKS if kind != "step"]
STRETCHES = st.tuples(st.integers(0, 2000), st.integers(0, 500))  # microseconds
SPANS = st.lists(
    st.builds(
        lambda rank, step, kind, stretch: span(rank, step, kind, "a", stretch[0] / 1e3, sum(stretch) / 1e3),
        st.integers(0, 2),
        st.integers(1, 3),
        st.sampled_from([*KINDS, "new kind"]),
        STRETCHES,
    ),
    max_size=30,
)


def span(rank: int, step: int, kind: str, name: str, start_ms: float, end_ms: float, size_bytes: int = 0) -> Span:
    return Span(rank, step, kind, name, AT + start_ms / 1e3, AT + end_ms / 1e3, size_bytes)


def step_of(rank: int, step: int, at_ms: float) -> list[Span]:
    """Two buckets that travel under backward and the next forward, at the same time for a while."""
    return [
        span(rank, step, "phase", "forward", at_ms, at_ms + 10),
        span(rank, step, "phase", "backward", at_ms + 10, at_ms + 30),
        span(rank, step, "ready", "1.weight", at_ms + 10, at_ms + 15),
        span(rank, step, "ready", "0.weight", at_ms + 10, at_ms + 30),
        span(rank, step, "exchange", "1.weight", at_ms + 16, at_ms + 40, 4000),
        span(rank, step, "exchange", "0.weight", at_ms + 32, at_ms + 36, 1000),
        span(rank, step, "update", "0.weight", at_ms + 36, at_ms + 37),
        span(rank, step, "update", "1.weight", at_ms + 41, at_ms + 43),
        span(rank, step, "wait", "0.weight", at_ms + 33, at_ms + 37),
    ]


# of each phase: the keys that it must have, and those that it may have beside them
KEYS: dict[str, tuple[set[str], set[str]]] = {
    "M": ({"ph", "pid", "name", "args"}, {"tid"}),
    "X": ({"ph", "pid", "tid", "name", "ts", "dur"}, {"cat", "args"}),
    "i": ({"ph", "pid", "tid", "name", "ts", "s"}, {"cat", "args"}),
}
METADATA = {
    "process_name": ("name", str),
    "thread_name": ("name", str),
    "process_sort_index": ("sort_index", int),
    "thread_sort_index": ("sort_index", int),
}


def check_rules(found: list[dict[str, Any]]) -> None:
    """Viewers rely on this: of each phase its keys, times that are none below zero and go up, named tracks, no overlap.

    By "Trace Event Format": X needs ts and dur, i a scope, M an argument of its own; flows and pairs of B and E, which
    need partners, are not written.
    """
    threads: dict[tuple[int, int], list[tuple[int, int]]] = {}
    named: dict[str, set[tuple[int, int]]] = {}
    for event in found:
        place = event["pid"], event.get("tid", 0)
        assert event["pid"] > 0
        assert set(event) <= KEYS[event["ph"]][0] | KEYS[event["ph"]][1], "nothing that no viewer knows"
        assert set(event) >= KEYS[event["ph"]][0]
        assert isinstance(event["name"], str)
        assert all(isinstance(event[key], int) for key in ("ts", "dur", "pid", "tid") if key in event), "microseconds"
        match event["ph"]:
            case "M":
                argument, kind = METADATA[event["name"]]
                assert isinstance(event["args"][argument], kind)
                assert place not in named.get(event["name"], ()), "said once"
                named.setdefault(event["name"], set()).add(place)
            case "X":
                assert event["ts"] >= 0
                assert event["dur"] >= 0
                threads.setdefault(place, []).append((event["ts"], event["ts"] + event["dur"]))
            case "i":
                assert event["ts"] >= 0
                assert event["s"] == "t"
                threads.setdefault(place, []).append((event["ts"], event["ts"]))
            case other:
                pytest.fail(f"no phase is called {other!r}")
    for stretches in threads.values():
        assert stretches == sorted(stretches), "a track's events in the order of their times"
        assert all(first[1] <= second[0] for first, second in pairwise(sorted(stretches)))
    assert named.get("thread_name", set()) == named.get("thread_sort_index", set()) == set(threads)
    assert {pid for pid, _ in named.get("process_name", set())} == {pid for pid, _ in threads}
    assert len({tid for _, tid in threads}) == len(threads)
    assert all(tid > 0 for _, tid in threads)


@given(spans=SPANS)
def test_any_spans_make_a_timeline_that_keeps_the_rules(spans):
    written = json.loads(to_json(spans, {}, "it"))
    assert written["displayTimeUnit"] in ("ms", "ns")
    found = written["traceEvents"]
    check_rules(found)
    drawn = [event for event in found if event["ph"] in "Xi" and event["cat"] != "step"]
    assert len(drawn) == len(spans)


def test_ranks_are_processes_and_kinds_are_tracks_side_by_side_where_they_overlap():
    spans = [*step_of(1, 2, 0.5), *step_of(0, 2, 0.0), *step_of(0, 3, 31.0)]
    found = list(events(spans, {0: "hostb"}))
    check_rules(found)
    names = {e.get("tid", -e["pid"]): e["args"]["name"] for e in found if e["name"].endswith("_name")}
    assert {names[-1], names[-2]} == {"rank 0, hostb", "rank 1"}
    by_track: dict[tuple[int, str], list[Any]] = {}
    for event in found:
        if event["ph"] != "M":
            by_track.setdefault((event["pid"] - 1, names[event["tid"]]), []).append((event["name"], event["ts"]))
    assert by_track[0, "steps"] == [("step 2", 0), ("step 3", 31_000)]
    assert by_track[0, "compute"][:2] == [("forward", 0), ("backward", 10_000)]
    assert by_track[0, "wire 1"] == [("1.weight", 16_000), ("1.weight", 47_000)]
    assert by_track[0, "wire 2"] == [("0.weight", 32_000), ("0.weight", 63_000)]
    assert by_track[1, "ready"] == [("1.weight", 15_500), ("0.weight", 30_500)]
    assert by_track[1, "waits"] == [("0.weight", 33_500)]
    order = [names[event["tid"]] for event in found if event["name"] == "thread_sort_index" and event["pid"] == 1]
    assert order == ["steps", "compute", "waits", "ready", "wire 1", "wire 2", "update"]


def test_an_event_carries_its_step_its_bytes_and_how_far_into_backward_it_was_ready():
    found = {(event["name"], event.get("cat")): event for event in events(step_of(0, 7, 0.0), {})}
    assert found["1.weight", "exchange"]["args"] == {"step": 7, "bytes": 4000}
    assert found["1.weight", "exchange"]["dur"] == 24_000
    assert found["1.weight", "ready"]["args"] == {"step": 7, "us_after_backward_began": 5_000}
    assert found["backward", "phase"]["args"] == {"step": 7}


def test_the_journey_of_a_bucket_is_a_median_over_ranks_and_steps():
    spans = [one for step in (2, 3, 4) for rank in (0, 1) for one in step_of(rank, step, step * 100.0 + rank)]
    late = span(0, 4, "wait", "0.weight", 500, 600)
    spans.append(span(0, 5, "phase", "forward", 600, 700))
    first, second = journeys([*spans, late])
    assert (first.name, first.size_bytes, first.waited_s) == ("1.weight", 4000, None)
    assert (second.name, second.size_bytes) == ("0.weight", 1000)
    told = [second.ready_to_sent_s, second.sent_to_received_s, second.received_to_applied_s, second.waited_s]
    assert told == pytest.approx([0.002, 0.004, 0.001, 0.004], abs=1e-6)


def test_the_pieces_of_a_large_layer_are_one_journey():
    pieces = [
        span(0, 2, kind, f"4.weight[{rows}]", start, end, 100)
        for kind, rows, start, end in [
            ("ready", "0:8", 0, 10),
            ("ready", "8:16", 0, 12),
            ("exchange", "8:16", 15, 20),
            ("exchange", "0:8", 20, 30),
            ("update", "8:16", 20, 21),
            ("update", "0:8", 31, 32),
        ]
    ]
    (one,) = journeys(pieces)
    assert (one.name, one.size_bytes) == ("4.weight", 200)
    told = [one.ready_to_sent_s, one.sent_to_received_s, one.received_to_applied_s]
    assert told == pytest.approx([0.005, 0.015, 0.002], abs=1e-6)


def test_a_step_in_which_compute_did_not_wait_counts_as_no_wait():
    spans = [*step_of(0, 2, 0.0), *(one for step in (3, 4) for one in step_of(0, step, 100.0 * step)[:-1])]
    assert journeys(spans)[1].waited_s == 0.0


def test_without_an_exchange_there_are_no_journeys():
    assert journeys([span(0, 2, "phase", "forward", 0, 1), span(0, 0, "broadcast", "0.weight", 0, 1)]) == []
