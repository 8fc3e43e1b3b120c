"""All runs of a folder, one row each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from volary.errors import RunError
from volary.monitor.digest import best_of, known_number, steps_done
from volary.run.directory import RunDirectory
from volary.run.reader import RunReader


@dataclass(frozen=True)
class Listed:
    """One run of a list. state is `unreadable` where its database is damaged; started_at in seconds since 1970."""

    name: str
    path: str
    state: str
    step: int = 0
    steps_planned: int | None = None
    metric: str | None = None
    best: float | None = None
    started_at: float | None = None


def listing(folder: Path) -> list[Listed]:
    """The runs in `folder`, the newest last."""
    return sorted(map(_listed, RunDirectory.all_in(folder)), key=lambda row: (row.started_at or 0, row.name))


def _listed(directory: RunDirectory) -> Listed:
    name, path = directory.name, str(directory.path)
    try:
        with RunReader(directory) as reader:
            info, state, last = reader.info(), reader.state(), reader.last_step()
    except RunError:
        return Listed(name, path, "unreadable")
    planned, best = known_number(info, "steps_planned"), best_of(info)
    return Listed(
        name=name,
        path=path,
        state=state,
        step=steps_done(info, state, last),
        steps_planned=int(planned) if planned else None,
        metric=info.get("metric"),
        best=next(iter(best.values.values())) if best else None,
        started_at=known_number(info, "started_at"),
    )
