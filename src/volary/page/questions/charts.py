"""What charts over steps draw: columns of equal width, as many as there is room for, however many steps there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from volary.run.database.pyramid import StepGroup, StepView
from volary.run.database.reader import PHASES, RunReader

Values = list[float | None]


def steps(reader: RunReader, first: int, last: int | None, most: int) -> dict[str, Any]:
    """Loss, learning rate, throughput, time by phase and bytes of steps `first` to `last`, over all workers.

    x: the middle of each column. A column without steps is None in all lists, so that a gap is drawn as one.
    sent_bytes, received_bytes and samples count from the first step of the view.
    """
    view = _view(reader, first, last, most)
    columns = _by_column(view)
    phases = {phase: _each(columns, _mean(f"{phase}_s")) for phase in PHASES}
    step = _each(columns, _mean("step_s"))
    return {
        **_frame(view),
        "x": [_middle(view, column) for column in range(len(columns))],
        "loss": {
            "least": _each(columns, lambda groups: _least(group.loss_min for group in groups)),
            "greatest": _each(columns, lambda groups: _greatest(group.loss_max for group in groups)),
            "mean": _each(columns, _loss),
        },
        "lr": _each(columns, lambda groups: _greatest(group.lr for group in groups)),
        "samples_per_s": _each(columns, _throughput),
        "step_s": step,
        "phases_s": phases,
        "ended_at": _each(columns, lambda groups: max(group.ended_at for group in groups), digits=14),
        "samples": _added(columns, lambda groups: sum(group.samples for group in groups)),
        "sent_bytes": _added(columns, lambda groups: sum(group.sent_bytes for group in groups)),
        "received_bytes": _added(columns, lambda groups: sum(group.received_bytes for group in groups)),
        "sent_bytes_per_step": _each(columns, _mean("sent_bytes")),
        "received_bytes_per_step": _each(columns, _mean("received_bytes")),
    }


def ranks(reader: RunReader, first: int, last: int | None, most: int) -> dict[str, Any]:
    """By worker, as lists of a value for each column: seconds of its own in a step, and seconds in which it waited."""
    view = _view(reader, first, last, most)
    by_rank: dict[int, list[StepGroup]] = {}
    for group in view.groups:
        by_rank.setdefault(group.rank, []).append(group)
    found = []
    for rank, groups in by_rank.items():
        columns: list[list[StepGroup]] = [[] for _ in range(_count(view))]
        for group in groups:
            columns[group.column].append(group)
        own = _each(columns, lambda one: (one[0].step_s - one[0].exchange_s) / one[0].count)
        found.append(
            {
                "rank": rank,
                "own_s": own,
                "waited_s": _each(columns, _mean("exchange_s")),
                "mean": {
                    **{f"{phase}_s": _over(groups, f"{phase}_s") for phase in PHASES},
                    **{name: _over(groups, name) for name in ("step_s", "sent_bytes", "received_bytes", "samples")},
                    "steps": sum(group.count for group in groups),
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


def _view(reader: RunReader, first: int, last: int | None, most: int) -> StepView:
    return reader.view(max(1, first), max(1, reader.last_step() if last is None else last), most)


def _frame(view: StepView) -> dict[str, Any]:
    """What is seen, and of how many points it is made: a point is a step of a worker."""
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


def _each(
    columns: Sequence[list[StepGroup]], value: Callable[[list[StepGroup]], float | None], digits: int = 6
) -> Values:
    return [short(value(groups), digits) if groups else None for groups in columns]


def _added(columns: Sequence[list[StepGroup]], value: Callable[[list[StepGroup]], float]) -> Values:
    total, found = 0.0, []
    for groups in columns:
        total += value(groups)
        found.append(short(total, 12) if groups else None)
    return found


def _mean(name: str) -> Callable[[list[StepGroup]], float]:
    return lambda groups: _over(groups, name)


def _over(groups: Sequence[StepGroup], name: str) -> float:
    """A step's mean of what is summed."""
    return float(sum(getattr(group, name) for group in groups)) / (sum(group.count for group in groups) or 1)


def _loss(groups: Iterable[StepGroup]) -> float | None:
    counted = [group for group in groups if group.loss_sum is not None]
    return (
        sum(group.loss_sum or 0.0 for group in counted) / sum(group.loss_count for group in counted)
        if counted
        else None
    )


def _throughput(groups: list[StepGroup]) -> float | None:
    seconds = sum(group.step_s for group in groups) / len(groups)  # workers take them side by side
    return sum(group.samples for group in groups) / seconds if seconds > 0 else None


def _least(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _greatest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def short(value: float | None, digits: int = 6) -> float | None:
    """As many digits as can be seen: most of an answer is numbers."""
    return None if value is None else float(f"{value:.{digits}g}")
