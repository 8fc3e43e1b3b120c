"""The curves of a run under the names that people ask for: `loss` is that of training and that of validation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from volary.errors import BadInput
from volary.monitor.wording import whole
from volary.run.database.course.curves import MEASURED, Point
from volary.run.database.reader import RunReader

_Metrics = Mapping[str, Sequence[tuple[int, float]]]


@dataclass(frozen=True)
class Curve:
    """How one thing went. label: what to call it beside others, as in `training loss`."""

    label: str
    points: tuple[Point, ...]

    @property
    def finite(self) -> tuple[Point, ...]:
        """The points that can be drawn: those that are numbers."""
        return tuple(point for point in self.points if math.isfinite(point.mean))

    def extremes(self) -> tuple[Point, Point]:
        """The points with the least and the greatest value; the newest one, if none is a number."""
        known = self.finite or self.points[-1:]
        return min(known, key=lambda point: point.mean), max(known, key=lambda point: point.mean)

    def as_dict(self) -> dict[str, Any]:
        """Return the curve in plain values, for `--json`."""
        return {
            "label": self.label,
            "steps": [point.step for point in self.points],
            "values": [point.mean for point in self.points],
        }


def names(reader: RunReader) -> list[str]:
    """The names that can be asked for: what evaluations measured, then what is measured of every step."""
    return _names(reader.metrics())


def curves(reader: RunReader, name: str, points: int, *, own_loop: bool) -> list[Curve]:
    """The curves called `name`: of the steps, of evaluations, or both; none where nothing is recorded yet.

    points: at most so many of the steps; evaluations are never thinned out. own_loop: what a training loop of the
    user's own records as its loss stands for that of its steps. Raises BadInput for a name that the run does not have.
    """
    metrics = reader.metrics()
    if name not in _names(metrics):
        raise BadInput(f"{reader.directory.name} has recorded no {name!r}; accepted: {', '.join(_names(metrics))}")
    return _called(name, reader, metrics, points, own_loop)


def measured(reader: RunReader, points: int, *, own_loop: bool) -> list[Curve]:
    """The loss, and everything that evaluations measured."""
    metrics = reader.metrics()
    wanted = ["loss", *(name for name in sorted(whole(metrics)) if name != "loss")]
    return [curve for name in wanted for curve in _called(name, reader, metrics, points, own_loop)]


def _names(metrics: _Metrics) -> list[str]:
    return list(dict.fromkeys([*sorted(metrics), *MEASURED]))


def _called(name: str, reader: RunReader, metrics: _Metrics, points: int, own_loop: bool) -> list[Curve]:
    found = []
    if name in MEASURED and not (name == "loss" and own_loop and name in metrics):
        steps = Curve("training loss" if name == "loss" else name, tuple(reader.curve(name, points)))
        if not own_loop or steps.finite:  # there nobody may know the loss of a step
            found.append(steps)
    if name in metrics:
        label = name if own_loop else f"validation {name}"
        found.append(Curve(label, tuple(Point(step, value, value, value) for step, value in metrics[name])))
    return [curve for curve in found if curve.points]
