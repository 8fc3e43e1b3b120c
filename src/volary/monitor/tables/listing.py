"""All runs of a folder, one row each, with as much of each as is asked for."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from volary.errors import BadInput, RunError
from volary.monitor.digest import best_of, elapsed_s, known_number, steps_done
from volary.monitor.outline import settings_in
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.run.removing import bytes_of
from volary.run.tags import read_tags

Value = str | float | None


@dataclass(frozen=True)
class Listed:
    """One run of a list. state is `unreadable` where its database is damaged; started_at in seconds since 1970.

    columns: by name what was asked for besides; None where this run has no such thing.
    """

    name: str
    path: str
    state: str
    step: int = 0
    steps_planned: int | None = None
    metric: str | None = None
    best: float | None = None
    higher_is_better: bool = True
    started_at: float | None = None
    tags: tuple[str, ...] = ()
    note: str = ""
    columns: Mapping[str, Value] = field(default_factory=dict)


_OWN: dict[str, Callable[[Listed], Value]] = {
    "name": lambda row: row.name,
    "state": lambda row: row.state,
    "step": lambda row: row.step,
    "best": lambda row: row.best,
    "when": lambda row: row.started_at,
    "tags": lambda row: ", ".join(row.tags),
    "note": lambda row: row.note,
}
_READ: dict[str, Callable[[RunReader], Value]] = {
    "workers": lambda reader: known_number(reader.info(), "workers"),
    "time": lambda reader: elapsed_s(reader, reader.info(), reader.state(), time.time()),
    "samples_per_s": lambda reader: reader.totals().samples_per_s,
    "sent_bytes": lambda reader: reader.totals().sent_bytes,
    "size": lambda reader: bytes_of(reader.directory),
    "message": lambda reader: reader.info().get("message") or None,
}
COLUMNS = (*_OWN, *_READ)


def listing(folder: Path, columns: Sequence[str] = ()) -> list[Listed]:
    """The runs in `folder`, the newest last. columns: names in `COLUMNS`, metrics (their newest value), and settings.

    Raises BadInput for a column that no run has.
    """
    runs = [_listed(directory, columns) for directory in RunDirectory.all_in(folder)]
    for column in columns if runs else ():
        if column not in COLUMNS and all(row.columns.get(column) is None for row in runs):
            raise BadInput(f"no run in {folder}/ has a column {column!r}; {_hint(column, RunDirectory.all_in(folder))}")
    return sorted(runs, key=lambda row: (row.started_at or 0, row.name))


def ordered(runs: Sequence[Listed], by: str) -> list[Listed]:
    """Sort by a column: `best` from the best on, others from the least to the greatest; runs without it come last."""

    def rank(row: Listed) -> tuple[int, float, str]:
        value = row.columns[by]
        if value is None or value != value:
            return 2, 0.0, row.name
        if isinstance(value, str):
            return 1, 0.0, value
        return 0, -value if by == "best" and row.higher_is_better else value, row.name

    return sorted(runs, key=rank)


def _listed(directory: RunDirectory, columns: Sequence[str]) -> Listed:
    name, path, labels = directory.name, str(directory.path), read_tags(directory)
    try:
        with RunReader(directory) as reader:
            info, state, last = reader.info(), reader.state(), reader.last_step()
            planned, best = known_number(info, "steps_planned"), best_of(info)
            row = Listed(
                name=name,
                path=path,
                state=state,
                step=steps_done(info, state, last),
                steps_planned=int(planned) if planned else None,
                metric=info.get("metric"),
                best=next(iter(best.values.values())) if best else None,
                higher_is_better=info.get("higher_is_better") != "False",
                started_at=known_number(info, "started_at"),
                tags=labels.tags,
                note=labels.note,
            )
            read = _read(reader, [column for column in columns if column not in _OWN])
    except RunError:
        row, read = Listed(name, path, "unreadable", tags=labels.tags, note=labels.note), {}
    own = {column: _OWN[column](row) for column in columns if column in _OWN}
    return Listed(**(vars(row) | {"columns": {column: (own | read).get(column) for column in columns}}))


def _read(reader: RunReader, columns: Sequence[str]) -> dict[str, Value]:
    found: dict[str, Value] = {column: _READ[column](reader) for column in columns if column in _READ}
    settings = _settings(reader.directory)
    for column in columns:
        if column not in _READ:  # `loss` is asked for as a metric: which loss it is of is a setting
            metric = reader.newest(column)
            found[column] = _number(settings[column]) if metric is None and column in settings else metric
    return found


def _settings(directory: RunDirectory) -> dict[str, str]:
    try:
        return settings_in(directory.session)
    except (OSError, ValueError):
        return {}


def _number(text: str) -> Value:
    try:
        value = float(text)
    except ValueError:
        return text
    return value if math.isfinite(value) else text


def _hint(column: str, runs: Sequence[RunDirectory]) -> str:
    settings = {name: None for run in runs for name in _settings(run)}
    near = get_close_matches(column, [*COLUMNS, *settings], n=1)
    return f"{f'did you mean {near[0]!r}? ' if near else ''}accepted: {', '.join(COLUMNS)}, a metric, a setting"
