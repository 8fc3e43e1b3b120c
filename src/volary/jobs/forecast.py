"""When each waiting run is expected to start: the schedule played forward, as far as it is known what ends when."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from volary.jobs.entry import Capacity, QueueEntry
from volary.jobs.schedule import decide

ENDS = 10  # that are played: what is farther is a guess of guesses


def expected_starts(
    entries: Sequence[QueueEntry],
    capacity: Capacity,
    now_s: float,
    *,
    ends: Mapping[str, float],
    unfinished: Collection[str] = (),
) -> dict[str, float]:
    """When waiting runs are expected to start, by run, on the clock of `now_s`; without those that cannot be foreseen.

    Arguments as of `decide`.
    """
    found: dict[str, float] = {}
    playing, at_s, known = {one.run: one for one in entries}, now_s, dict(ends)
    for _ in range(ENDS):
        decided = decide(list(playing.values()), capacity, at_s, ends=known, unfinished=unfinished)
        for one in decided.start:
            found.setdefault(one.run, at_s)
            playing[one.run] = one
            known[one.run] = math.inf if one.time_s is None else at_s + one.time_s
        for run in decided.stop:
            playing[run] = playing[run].waiting_again()
        for one in [one for one in playing.values() if one.state == "stopping"]:
            del playing[one.run]  # where it stands when it waits again is not played
        if decided.stop:
            continue
        running = [one for one in playing.values() if one.state == "running"]
        at_s = max(at_s, min((_end(one, known) for one in running), default=math.inf))
        if at_s == math.inf:
            break
        for one in running:
            if _end(one, known) <= at_s:
                del playing[one.run]
    return found


def _end(entry: QueueEntry, known: Mapping[str, float]) -> float:
    own = math.inf if entry.time_s is None else entry.started_s + entry.time_s
    return known.get(entry.run, own)
