"""Copies a run to loggers: all that it has recorded, and, while it trains, what it records."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from volary.loggers._base import About, Writer
from volary.monitor.digest import known_number
from volary.monitor.outline import own_loop, settings_in
from volary.run.database.journal import StepRow
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory

LOOK_S = 1.0
CHUNK_ROWS = 10_000
MOST_BEHIND = 200  # steps after which a worker that has not done one is not waited for: it may be gone


def copy_run(directory: RunDirectory, loggers: Sequence[Any], *, follow: bool = False) -> About:
    """Give the run to `loggers`, each a `Logger`. follow: until nobody drives it. Raises BadInput and RunError."""
    with RunReader(directory) as reader:
        about = _about(reader, live=follow and directory.is_live())
        copies: list[Writer] = []
        copy = _Copy(reader, about, copies)
        try:
            copies.extend(logger.open(about) for logger in loggers)
            while follow and directory.is_live():
                copy.look(whole=False)
                time.sleep(LOOK_S)
            copy.look(whole=True)
        finally:
            state = reader.state()
            for writer in copies:
                writer.close(state)
    return about


class _Copy:
    def __init__(self, reader: RunReader, about: About, writers: Sequence[Writer]) -> None:
        self._reader, self._about, self._writers = reader, about, writers
        self._step = 0
        self._measured: set[tuple[int, str]] = set()

    def look(self, *, whole: bool) -> None:
        """Hand over what is new. whole: no worker will add to a step that is there."""
        until = self._reader.last_step() if whole else self._settled()
        waiting: list[StepRow] = []
        for step, rows in groupby(self._reader.steps(after=self._step), key=lambda row: row.step):
            if step > until:
                break
            waiting += rows
            if len(waiting) >= CHUNK_ROWS:
                self._give(waiting)
                waiting = []
        self._give(waiting)
        self._step = max(self._step, until)
        for step, values, at in self._new_metrics():
            for writer in self._writers:
                writer.measured(step, values, at)
        for writer in self._writers:
            writer.flush()

    def _give(self, rows: list[StepRow]) -> None:
        for writer in self._writers:
            writer.steps(rows)

    def _settled(self) -> int:
        """The newest step that all workers have done that are here."""
        newest: dict[int, int] = {}
        for row in self._reader.steps(after=max(self._step, self._reader.last_step() - MOST_BEHIND)):
            newest[row.rank] = row.step
        return min(newest.values(), default=self._step)

    def _new_metrics(self) -> list[tuple[int, dict[str, float], float]]:
        found: dict[int, dict[str, float]] = {}
        for name, pairs in self._reader.metrics().items():
            for step, value in pairs:
                if (step, name) not in self._measured:
                    self._measured.add((step, name))
                    found.setdefault(step, {})[name] = value
        times = {event.step: event.at for event in self._reader.events(kind="evaluated")} if found else {}
        return [(step, found[step], times.get(step, self._about.started_at)) for step in sorted(found)]


def _about(reader: RunReader, *, live: bool) -> About:
    directory, info = reader.directory, reader.info()
    try:
        settings = settings_in(directory.session)
    except (OSError, ValueError):
        settings = {}
    return About(
        name=directory.name,
        path=directory.path,
        settings=settings,
        started_at=known_number(info, "started_at") or 0.0,
        own_loop=bool(own_loop(settings)),
        live=live,
    )
