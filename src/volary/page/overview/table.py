"""The table of runs: a row for each, read again only if its run has changed."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

from volary.errors import RunError
from volary.monitor.digest import best_of, elapsed_s, known_number, steps_done
from volary.monitor.outline import outline
from volary.page.overview.changes import Signature, signature
from volary.page.overview.folder import Folder
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.run.removing import bytes_of
from volary.run.tags import read_tags


@dataclass(frozen=True)
class Row:
    """One run of the table. state `unreadable`: its database is damaged. Times in seconds; started_at since 1970.

    samples_per_s: of all workers, in its newest steps. size_bytes: of all its files.
    """

    id: str
    state: str
    strategy: str = ""
    network: str = ""
    source: str = ""
    workers: int = 0
    step: int = 0
    steps_planned: int | None = None
    metric: str = ""
    best: float | None = None
    higher_is_better: bool = True
    samples_per_s: float | None = None
    elapsed_s: float | None = None
    size_bytes: int = 0
    started_at: float | None = None
    message: str = ""
    tags: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class RunTable:
    """unread: runs that are not there yet, or not as they are now, for want of time."""

    runs: list[Row]
    unread: int


class Overview:
    """The rows of a folder's runs. One thread at a time."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._known: dict[str, tuple[Signature, Row]] = {}

    def table(self, within_s: float = math.inf) -> RunTable:
        """The runs, the newest first. within_s: for so long runs are read, those first that were written last."""
        until = time.monotonic() + within_s
        known, self._known, unread = self._known, {}, 0
        found = [(signature(directory), name, directory) for name, directory in self._folder.runs().items()]
        for now, name, directory in sorted(found, key=lambda one: _newest(one[0]), reverse=True):
            before = known.get(name)
            # a run that says running is asked again: that its driver is gone changes no file
            if before and before[0] == now and before[1].state != "running":
                self._known[name] = before
            elif time.monotonic() < until or not self._known:
                self._known[name] = now, row(name, directory)
            else:
                unread += 1
                self._known |= {name: before} if before else {}
        rows = sorted((one for _, one in self._known.values()), key=lambda one: (-(one.started_at or 0), one.id))
        return RunTable(rows, unread)


def _newest(found: Signature) -> int:
    return max(written[0] if written else 0 for written in found)


def row(name: str, directory: RunDirectory) -> Row:
    """The row of one run, read now."""
    size, about, labels = bytes_of(directory), outline(directory.session), read_tags(directory)
    blank = Row(
        name,
        "unreadable",
        network=about.network or about.own_loop,
        source=about.source,
        strategy=about.strategy,
        size_bytes=size,
        tags=labels.tags,
        note=labels.note,
    )
    try:
        with RunReader(directory) as reader:
            info, state, window = reader.info(), reader.state(), reader.window()
            took_s = elapsed_s(reader, info, state, time.time())
    except RunError:
        return blank
    best, planned = best_of(info), known_number(info, "steps_planned")
    return replace(
        blank,
        state=state,
        workers=int(known_number(info, "workers") or 0),
        step=steps_done(info, state, window.step if window else 0),
        steps_planned=int(planned) if planned else None,
        metric=info.get("metric", ""),
        best=next(iter(best.values.values())) if best else None,
        higher_is_better=info.get("higher_is_better") != "False",
        samples_per_s=window.samples_per_s or None if window else None,
        elapsed_s=took_s,
        started_at=known_number(info, "started_at"),
        message=info.get("message", ""),
    )
