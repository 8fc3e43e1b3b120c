"""Copies a run to loggers: all that it has recorded, and, while it trains, what it records."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Any

from volary.errors import BadInput, VolaryError
from volary.loggers._base import About, Logger, Writer
from volary.monitor.digest import known_number
from volary.monitor.outline import own_loop, settings_in
from volary.run.database.journal import StepRow
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory

LOOK_S = 1.0
CHUNK_ROWS = 10_000
MOST_BEHIND = 200  # steps after which a worker that has not done one is not waited for: it may be gone


def copy_run(directory: RunDirectory, loggers: Sequence[Any], *, follow: bool = False) -> About:
    """Give the run to `loggers`, each a `Logger`. follow: until nobody drives it.

    One that fails on the way keeps no other from its copy. Raises BadInput and RunError, and in the end VolaryError
    with the names of all that have failed.
    """
    with RunReader(directory) as reader:
        about = _about(reader, live=follow and directory.is_live())
        writers = _Writers()
        copy = _Copy(reader, about, writers)
        try:
            for logger in loggers:
                writers.open(logger, about)
            while follow and writers.left and directory.is_live():
                copy.look(whole=False)
                time.sleep(LOOK_S)
            copy.look(whole=True)
        finally:
            state = reader.state()
            writers.each(lambda writer: writer.close(state))
    if writers.failed:
        raise VolaryError("\n".join(writers.failed))
    return about


class _Writers:
    """The writers that have not failed, by what to call each. failed: a sentence for every other."""

    def __init__(self) -> None:
        self.left: list[tuple[str, Writer]] = []
        self.failed: list[str] = []

    def open(self, logger: Logger, about: About) -> None:
        """Begin a copy. Raises BadInput if the logger refuses."""
        name = type(logger).__module__.rpartition(".")[2]
        try:
            self.left.append((name, logger.open(about)))
        except BadInput:
            raise
        except Exception as error:
            self._fail(name, error)

    def each(self, act: Callable[[Writer], object]) -> None:
        """Do this with every writer."""
        for one in list(self.left):
            name, writer = one
            try:
                act(writer)
            except Exception as error:  # each tool has errors of its own
                self.left.remove(one)
                with suppress(Exception):
                    writer.close("failed")
                self._fail(name, error)

    def _fail(self, name: str, error: Exception) -> None:
        why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
        self.failed.append(f"{name}: the copy is not whole: {(why.strip() or type(error).__name__).splitlines()[0]}")


def _measured(step: int, values: Mapping[str, float], at: float, writer: Writer) -> None:
    writer.measured(step, values, at)


class _Copy:
    def __init__(self, reader: RunReader, about: About, writers: _Writers) -> None:
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
            self._writers.each(partial(_measured, step, values, at))
        self._writers.each(lambda writer: writer.flush())

    def _give(self, rows: list[StepRow]) -> None:
        self._writers.each(lambda writer: writer.steps(rows))

    def _settled(self) -> int:
        """The newest step that all workers have done that are here."""
        newest: dict[int, int] = {}
        for row in self._reader.steps(after=self._reader.last_step() - MOST_BEHIND):
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
        steps_per_epoch=int(info["steps_per_epoch"]) if "steps_now" in info and "steps_per_epoch" in info else None,
    )
