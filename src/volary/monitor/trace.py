"""Spans of a run as a timeline that ui.perfetto.dev and chrome://tracing open, and as medians by bucket and layer.

The format is the JSON of "Trace Event Format" (Duca & Sinclair), which Perfetto reads too: complete events (X) and
instant ones (i) in microseconds, and metadata (M) that names and orders processes and threads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import median
from typing import Any

import msgspec

from volary.run.database.spans import Span

TRACKS = {
    "step": "steps",
    "phase": "compute",
    "wait": "waits",
    "ready": "ready",
    "exchange": "wire",
    "pull": "wire",
    "broadcast": "wire",
    "update": "update",
}
_ORDER = list(dict.fromkeys(TRACKS.values()))
_US = 1_000_000
_PIECE = re.compile(r"\[\d+:\d+\]$")  # rows of a large layer that travel alone


def to_json(spans: Sequence[Span], hosts: Mapping[int, str], run: str) -> bytes:
    """The file's content: an object with an event a line. hosts: by rank, as far as known. run: its name."""
    head = msgspec.json.encode({"displayTimeUnit": "ms", "otherData": {"run": run}})
    lines = b",\n".join(msgspec.json.encode(event) for event in events(spans, hosts))
    return head[:-1] + b',"traceEvents":[\n' + lines + b"\n]}\n"


def events(spans: Sequence[Span], hosts: Mapping[int, str]) -> Iterator[dict[str, Any]]:
    """A process for each rank, with a track for each kind of span; time begins with the earliest of `spans`.

    Spans of a track that overlap are drawn on tracks side by side, as a viewer takes what lies within another for its
    part. Process and thread numbers begin with 1, and no two threads share one: Perfetto keeps 0 for the idle process.
    """
    spans = [*spans, *_whole_steps(spans)]
    origin_s = min((span.start_s for span in spans), default=0.0)
    threads = count(1)
    for rank in sorted({span.rank for span in spans}):
        mine = [span for span in spans if span.rank == rank]
        host = hosts.get(rank)
        yield from _named("process", {"pid": rank + 1}, f"rank {rank}" + (f", {host}" if host else ""), rank)
        for track in sorted({_track(span) for span in mine}, key=_place):
            lanes = _side_by_side([span for span in mine if _track(span) == track], origin_s)
            for number, lane in enumerate(lanes, start=1):
                where = {"pid": rank + 1, "tid": next(threads)}
                name = track if len(lanes) == 1 else f"{track} {number}"
                yield from _named("thread", where, name, where["tid"])
                yield from ({**event, **where} for event in lane)


@dataclass(frozen=True)
class Journey:
    """The journey of one bucket or layer: medians over ranks and recorded steps, None if it was not seen.

    The pieces of a large layer are one journey: ready_to_sent_s, for which it waited for its turn, is of its first
    piece; sent_to_received_s, until the sum was there, from the first to the last; received_to_applied_s, until the
    optimiser had used it, of the last. waited_s: how long compute waited for it, 0 in a step in which it did not.
    size_bytes: of all pieces.
    """

    name: str
    size_bytes: float
    ready_to_sent_s: float | None
    sent_to_received_s: float | None
    received_to_applied_s: float | None
    waited_s: float | None


def journeys(spans: Sequence[Span]) -> list[Journey]:
    """A row for each bucket and layer, in the order in which they first appear; none where nothing was exchanged."""
    by_name: dict[str, dict[tuple[int, int], dict[str, list[Span]]]] = {}
    recorded = {(span.rank, span.step) for span in spans if span.kind != "broadcast"}
    for span in spans:
        if span.kind in ("ready", "exchange", "pull", "update", "wait"):
            name = _PIECE.sub("", span.name)
            seen = by_name.setdefault(name, {}).setdefault((span.rank, span.step), {})
            seen.setdefault(span.kind, []).append(span)
    return [_journey(name, list(found.values()), len(recorded)) for name, found in by_name.items()]


def _journey(name: str, steps: list[dict[str, list[Span]]], recorded: int) -> Journey:
    """steps: the spans of one name, by kind, for each rank and step of the `recorded` ones that have some."""
    sent = [step for step in steps if "exchange" in step]
    ready = [max(0.0, _first(s["exchange"]) - min(one.end_s for one in s["ready"])) for s in sent if "ready" in s]
    applied = [max(0.0, _last(s["update"]) - _last(_travel(s))) for s in sent if "update" in s]
    waited = [sum(one.end_s - one.start_s for one in step["wait"]) for step in steps if "wait" in step]
    return Journey(
        name,
        size_bytes=_median([sum(one.size_bytes for one in step["exchange"]) for step in sent]) or 0.0,
        ready_to_sent_s=_median(ready),
        sent_to_received_s=_median([_last(_travel(step)) - _first(step["exchange"]) for step in sent]),
        received_to_applied_s=_median(applied),
        waited_s=_median([*waited, *[0.0] * (recorded - len(waited))]) if waited else None,
    )


def _travel(step: dict[str, list[Span]]) -> list[Span]:
    """There, and, where servers keep the parameters, back."""
    return [*step["exchange"], *step.get("pull", [])]


def _whole_steps(spans: Iterable[Span]) -> list[Span]:
    """Each step of each rank from its first phase to its last."""
    phases: dict[tuple[int, int], list[Span]] = {}
    for span in spans:
        if span.kind == "phase":
            phases.setdefault((span.rank, span.step), []).append(span)
    return [
        Span(rank, step, "step", f"step {step}", _first(found), _last(found), 0)
        for (rank, step), found in phases.items()
    ]


def _side_by_side(spans: Iterable[Span], origin_s: float) -> list[list[dict[str, Any]]]:
    """The spans as events, on as few lanes as keep those of a lane apart."""
    lanes: list[list[dict[str, Any]]] = []
    free_at: list[int] = []
    for start, end, event in sorted((_event(span, origin_s) for span in spans), key=lambda one: one[:2]):
        lane = next((number for number, at in enumerate(free_at) if at <= start), len(lanes))
        if lane == len(lanes):
            lanes.append([])
            free_at.append(0)
        lanes[lane].append(event)
        free_at[lane] = end
    return lanes


def _event(span: Span, origin_s: float) -> tuple[int, int, dict[str, Any]]:
    """Where a span begins and ends, in whole microseconds, and its event without process and thread."""
    start, end = round((span.start_s - origin_s) * _US), round((span.end_s - origin_s) * _US)
    args: dict[str, Any] = {"step": span.step}
    if span.size_bytes:
        args["bytes"] = span.size_bytes
    event = {"name": span.name, "cat": span.kind, "args": args}
    if span.kind == "ready":
        if end > start:
            args["us_after_backward_began"] = end - start
        return end, end, {**event, "ph": "i", "s": "t", "ts": end}
    return start, end, {**event, "ph": "X", "ts": start, "dur": end - start}


def _named(what: str, where: dict[str, int], name: str, place: int) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", **where, "name": f"{what}_name", "args": {"name": name}}
    yield {"ph": "M", **where, "name": f"{what}_sort_index", "args": {"sort_index": place}}


def _track(span: Span) -> str:
    return TRACKS.get(span.kind, span.kind)  # a run of a later version may have kinds of its own


def _place(track: str) -> tuple[int, str]:
    return _ORDER.index(track) if track in _ORDER else len(_ORDER), track


def _first(spans: Iterable[Span]) -> float:
    return min(span.start_s for span in spans)


def _last(spans: Iterable[Span]) -> float:
    return max(span.end_s for span in spans)


def _median(values: list[float]) -> float | None:
    return median(values) if values else None
