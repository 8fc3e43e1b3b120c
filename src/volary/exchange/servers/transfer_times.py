"""Times at which each slice left a worker, was held by all its servers, came back, and was put into the network."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Protocol


class SpanLog(Protocol):
    """Records spans; see `volary.train.recording.spans.Spans`. From any thread."""

    @property
    def recording(self) -> bool:
        """Whether there may be something to add now."""
        ...

    def add(self, step: int, kind: str, name: str, start_s: float, end_s: float, size_bytes: int = 0) -> None:
        """Keep a span of `step`, if that step is recorded."""
        ...


class TransferTimes:
    """The times of one worker's slices. names: by slice, of the chunk that it is a part of.

    A slice that is asked for at the end of a contribution belongs to that contribution's step, as its update does,
    though it comes under the next one's forward. Without a step to be recorded each call is a comparison or two.
    """

    def __init__(self, spans: SpanLog, names: Mapping[int, str]) -> None:
        self._spans, self._names = spans, names
        self._left: dict[tuple[int, int], float] = {}  # by slice and clock
        self._asked: dict[int, tuple[int, float]] = {}  # by slice: at which clock, and when
        self._arrived: dict[int, int] = {}  # by slice: the clock at which it was asked for

    def leaves(self, number: int, clock: int) -> None:
        """The contribution to a slice is put on the wire; of several servers, to the first."""
        if self._spans.recording:
            self._left.setdefault((number, clock), time.perf_counter())

    def held(self, number: int, clock: int, size_bytes: int) -> None:
        """Note that all servers of its shard hold it."""
        left_s = self._left.pop((number, clock), None)
        if left_s is not None:
            self._add(clock, "exchange", number, left_s, time.perf_counter(), size_bytes)

    def asked(self, number: int, clock: int) -> None:
        """Note that the values of slice `number` are asked for, if they have not been."""
        if self._spans.recording:
            self._asked.setdefault(number, (clock, time.perf_counter()))

    def arrived(self, number: int, size_bytes: int) -> None:
        """The values that were asked for are here."""
        clock, asked_s = self._asked.pop(number, (None, 0.0))
        if clock is not None:
            self._arrived[number] = clock
            self._add(clock, "pull", number, asked_s, time.perf_counter(), size_bytes)

    def installed(self, number: int, started_s: float, ended_s: float) -> None:
        """The network computes with them from now on."""
        clock = self._arrived.pop(number, None)
        if clock is not None:
            self._add(clock, "update", number, started_s, ended_s)

    def _add(self, clock: int, kind: str, number: int, start_s: float, end_s: float, size_bytes: int = 0) -> None:
        self._spans.add(clock + 1, kind, self._names[number], start_s, end_s, size_bytes)
