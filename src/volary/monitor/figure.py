"""Curves of runs as a figure of matplotlib: for notebooks and papers."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from volary.errors import BadInput
from volary.monitor.curves import Curve, curves
from volary.monitor.outline import outline
from volary.monitor.wording import whole
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 1000
_WIDTH, _HEIGHT = 6.0, 3.2  # inches of one picture


def figure(runs: Sequence[RunDirectory], names: Sequence[str]) -> Figure:
    """A picture for each of `names` (see `volary.monitor.curves.names`), with a curve of each run.

    Without names: the loss, and what evaluations measured. Where a point stands for several steps, the range of their
    values is shaded. Raises BadInput for a name that a run does not have, or if matplotlib is not installed.
    """
    shown = _figure_class()()
    found = {name: _curves(runs, name) for name in names or _measured(runs)}
    shown.set_size_inches(_WIDTH, _HEIGHT * max(1, len(found)))
    shown.set_layout_engine("constrained")
    pictures = shown.subplots(max(1, len(found)), squeeze=False)[:, 0]
    for picture, (name, lines) in zip(pictures, found.items(), strict=False):
        for line in lines:
            _draw(picture, line)
        picture.set(xlabel="step", ylabel=name)
        if lines:
            picture.legend()
    return shown


def png(shown: Figure) -> bytes:
    """The figure as a PNG file."""
    file = io.BytesIO()
    shown.savefig(file, format="png")
    return file.getvalue()


def _figure_class() -> type[Figure]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise BadInput("matplotlib is not installed; accepted: pip install 'volary[plot]' first") from None

    class Shown(Figure):
        """Shows itself in a notebook, whichever way matplotlib is set up there; pyplot does not keep it alive."""

        def _repr_png_(self) -> bytes:
            return png(self)

    return Shown


def _measured(runs: Sequence[RunDirectory]) -> list[str]:
    """The names of what the runs measured, the loss first; several curves may be under one."""
    found: dict[str, None] = {"loss": None}
    for run in runs:
        with RunReader(run) as reader:
            found |= dict.fromkeys(sorted(whole(reader.metrics())))
    return list(found)


def _curves(runs: Sequence[RunDirectory], name: str) -> list[Curve]:
    found = []
    for run in runs:
        with RunReader(run) as reader:
            mine = curves(reader, name, POINTS, own_loop=bool(outline(run.session).own_loop))
        several = len(runs) > 1
        found += [Curve(f"{run.name}, {one.label}" if several else one.label, one.points) for one in mine]
    return found


def _draw(picture: Axes, curve: Curve) -> None:
    steps = [point.step for point in curve.points]
    (line,) = picture.plot(
        steps, [point.mean for point in curve.points], label=curve.label, marker="." if len(steps) < 2 else ""
    )
    if any(point.most > point.least for point in curve.points):
        least, most = [point.least for point in curve.points], [point.most for point in curve.points]
        picture.fill_between(steps, least, most, color=line.get_color(), alpha=0.2, linewidth=0)
