"""The protocol of loggers: settings that open a writer, which is given all that a run records, once and in order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import ClassVar, Protocol

from volary.run.database.journal import StepRow
from volary.run.database.reader import PHASES

_ROUNDING = 1e-6  # of a step: epochs are floating-point numbers


@dataclass(frozen=True)
class About:
    """The run that is copied. settings: by dotted name, as in its session file. started_at: seconds since 1970.

    own_loop: its training loop is the user's own, so that Volary knows no loss of a step. live: it is not over yet.
    steps_per_epoch: of a run over servers, whose workers count contributions of their own; None: they count its steps.
    """

    name: str
    path: Path
    settings: Mapping[str, str]
    started_at: float
    own_loop: bool = False
    live: bool = False
    steps_per_epoch: int | None = None

    def step_of(self, rows: Sequence[StepRow]) -> int:
        """The step of the run that rows of one number belong to, as metrics do."""
        if self.steps_per_epoch is None:
            return rows[0].step
        return max(1, math.ceil(max(row.epoch for row in rows) * self.steps_per_epoch - _ROUNDING))


class Writer(Protocol):
    """Takes what a run records. Every step is given once, and with the rows of all workers that have done it."""

    def steps(self, rows: Sequence[StepRow]) -> None:
        """Rows of whole steps, in the order of steps and ranks."""
        ...

    def measured(self, step: int, values: Mapping[str, float], at: float) -> None:
        """Log what an evaluation measured, and when (seconds since 1970). A metric that is no number is NaN."""
        ...

    def flush(self) -> None:
        """Let others read all that was given."""
        ...

    def close(self, state: str) -> None:
        """End the log. state: of the run, as `volary runs` shows it."""
        ...


class Logger(Protocol):
    """A frozen dataclass; its fields are its settings, its file's name is its name and that of its extra.

    package: what has to be installed for it, if anything.
    """

    package: ClassVar[str | None]

    def check(self) -> None:
        """Raise BadInput if no copy can be made, by what is known before there is a run."""
        ...

    def open(self, about: About) -> Writer:
        """Begin a copy, in place of an older one of the same run. Raises BadInput if what it needs is not there."""
        ...

    def where(self, about: About) -> str:
        """Say in words where the copy is."""
        ...


def scalars(rows: Iterable[StepRow], about: About) -> Iterable[tuple[int, float, dict[str, float]]]:
    """Step, when it ended, and its figures by name: of all workers together, times as their mean."""
    for _, group in groupby(rows, key=lambda row: row.step):
        found = list(group)
        step_s = sum(row.step_s for row in found) / len(found)
        figures = {} if about.own_loop else {"training/loss": sum(row.loss for row in found) / len(found)}
        figures |= {"training/lr": found[0].lr, "training/epoch": max(row.epoch for row in found)}
        if step_s:
            figures["training/samples_per_s"] = sum(row.samples for row in found) / step_s
        figures["time/step_s"] = step_s
        for phase in PHASES:
            figures[f"time/{phase}_s"] = sum(getattr(row, f"{phase}_s") for row in found) / len(found)
        figures["bytes/sent"] = float(sum(row.sent_bytes for row in found))
        figures["bytes/received"] = float(sum(row.received_bytes for row in found))
        yield about.step_of(found), max(row.ended_at for row in found), figures


def named(values: Mapping[str, float], about: About) -> dict[str, float]:
    """Metrics as other tools are to call them: `validation/accuracy`, or as a loop of the user's own calls them."""
    return {name if about.own_loop else f"validation/{name}": value for name, value in values.items()}
