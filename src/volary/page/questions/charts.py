"""Data of charts over steps: columns of equal width, as many as there is room for, however many steps there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from volary.run.database.course.pyramid import StepGroup, StepView, merged
from volary.run.database.reader import PHASES, RunReader

Values = list[float | None]


def steps(reader: RunReader, first: int, last: int | None, most: int) -> dict[str, Any]:
    """Loss, learning rate, throughput, time by phase and bytes of steps `first` to `last`, over all workers.

    x: the middle of each column. A column without steps is None in all lists, so that a gap is drawn as one.
    sent_bytes, received_bytes and samples count from the first step of the view.
    """
    view = _view(reader, first, last, most)
    by_column = _by_column(view)
    columns = [merged(groups) if groups else None for groups in by_column]  # all workers as one
    return {
        **_frame(view),
        "x": [_middle(view, column) for column in range(len(columns))],
        "loss": {
            "least": _each(columns, attrgetter("loss_min")),
            "greatest": _each(columns, attrgetter("loss_max")),
            "mean": _each(columns, _loss),
        },
        "lr": _each(columns, attrgetter("lr")),
        "samples_per_s": [
            short(_throughput(group, len(groups))) if group else None
            for group, groups in zip(columns, by_column, strict=True)
        ],
        **_times(columns),
        "ended_at": _each(columns, attrgetter("ended_at"), digits=14),
        "samples": _added(columns, "samples"),
        "sent_bytes": _added(columns, "sent_bytes"),
        "received_bytes": _added(columns, "received_bytes"),
        "sent_bytes_per_step": _each(columns, _mean("sent_bytes")),
        "received_bytes_per_step": _each(columns, _mean("received_bytes")),
    }


def phases(reader: RunReader, rank: int, first: int, last: int | None, most: int) -> dict[str, Any]:
    """Time of a step of one worker, whole and by phase."""
    view = _view(reader, first, last, most, rank)
    columns = [groups[0] if groups else None for groups in _by_column(view)]
    x = [_middle(view, column) for column in range(len(columns))]
    return {"rank": rank, **_frame(view), "x": x, **_times(columns)}


def ranks(reader: RunReader, first: int, last: int | None, most: int) -> dict[str, Any]:
    """Each worker's seconds of its own in a step, and of waiting, as lists of a value for each column."""
    view = _view(reader, first, last, most)
    by_rank: dict[int, list[StepGroup]] = {}
    for group in view.groups:
        by_rank.setdefault(group.rank, []).append(group)
    found = []
    for rank, groups in by_rank.items():
        columns: list[StepGroup | None] = [None] * _count(view)
        for group in groups:
            columns[group.column] = group
        whole = merged(groups)
        found.append(
            {
                "rank": rank,
                "own_s": _each(columns, lambda one: (one.step_s - one.exchange_s) / one.count),
                "waited_s": _each(columns, _mean("exchange_s")),
                "mean": {
                    **{f"{phase}_s": _mean(f"{phase}_s")(whole) for phase in PHASES},
                    **{name: _mean(name)(whole) for name in ("step_s", "sent_bytes", "received_bytes", "samples")},
                    "steps": whole.count,
                },
            }
        )
    return {**_frame(view), "x": [_middle(view, column) for column in range(_count(view))], "ranks": found}


def metric(reader: RunReader, name: str, first: int, last: int | None, most: int) -> dict[str, Any]:
    """The values of an evaluation's metric, or of one that a loop recorded."""
    parts = reader.metric(name, first, last, most)
    return {
        "name": name,
        "points": sum(part.count for part in parts),
        "x": [short((part.first + part.last) / 2, 12) for part in parts],
        "mean": [short(part.mean) for part in parts],
        "least": [short(part.least) for part in parts],
        "greatest": [short(part.greatest) for part in parts],
    }


def _view(reader: RunReader, first: int, last: int | None, most: int, rank: int | None = None) -> StepView:
    return reader.course(first, last, most, rank)


def _frame(view: StepView) -> dict[str, Any]:
    """The range that is shown, and of how many points it is made: a point is a step of a worker."""
    return {
        "first": view.first,
        "last": view.last,
        "width": view.width,
        "points": sum(group.count for group in view.groups),
        "workers": len({group.rank for group in view.groups}),
    }


def _count(view: StepView) -> int:
    return (view.last - view.first) // view.width + 1


def _middle(view: StepView, column: int) -> float:
    first = view.first + column * view.width
    return (first + min(first + view.width - 1, view.last)) / 2


def _by_column(view: StepView) -> list[list[StepGroup]]:
    columns: list[list[StepGroup]] = [[] for _ in range(_count(view))]
    for group in view.groups:
        columns[group.column].append(group)
    return columns


def _each(columns: Sequence[StepGroup | None], value: Callable[[StepGroup], float | None], digits: int = 6) -> Values:
    return [short(value(group), digits) if group else None for group in columns]


def _times(columns: Sequence[StepGroup | None]) -> dict[str, Any]:
    return {
        "step_s": _each(columns, _mean("step_s")),
        "phases_s": {phase: _each(columns, _mean(f"{phase}_s")) for phase in PHASES},
    }


def _added(columns: Sequence[StepGroup | None], name: str) -> Values:
    total, found, value = 0.0, [], attrgetter(name)
    for group in columns:
        total += value(group) if group else 0
        found.append(short(total, 12) if group else None)
    return found


def _mean(name: str) -> Callable[[StepGroup], float]:
    """A step's mean of what is summed."""
    value = attrgetter(name)
    return lambda group: float(value(group)) / (group.count or 1)


def _loss(group: StepGroup) -> float | None:
    return None if group.loss_sum is None else group.loss_sum / group.loss_count


def _throughput(group: StepGroup, workers: int) -> float | None:
    seconds = group.step_s / workers  # workers take them side by side
    return group.samples / seconds if seconds > 0 else None


def short(value: float | None, digits: int = 6) -> float | None:
    """Keep as many digits as can be seen: most of an answer is numbers."""
    return None if value is None else float(f"{value:.{digits}g}")
