"""Event files that TensorBoard shows. Needs the package tensorboard, and no TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from volary.loggers._base import About, named, scalars
from volary.run.database.journal import StepRow
from volary.run.disk import refuse_unwritable

_PACKAGE = "tensorboard.compat.proto"


@dataclass(frozen=True, kw_only=True)
class TensorBoard:
    """Scalars of every step and evaluation. Show them with `tensorboard --logdir FOLDER`."""

    package: ClassVar[str | None] = "tensorboard"
    folder: Path | None = None  # where to (default: `tensorboard` in the run)

    def check(self) -> None:
        if self.folder is not None:
            refuse_unwritable("tensorboard: folder", self.folder, make=True)

    def open(self, about: About) -> TensorBoardWriter:
        """A new event file, in place of the older ones."""
        folder = self._folder(about)
        writer = import_module("tensorboard.summary.writer.event_file_writer")
        event, summary = import_module(f"{_PACKAGE}.event_pb2"), import_module(f"{_PACKAGE}.summary_pb2")
        for old in folder.glob("events.out.tfevents.*.volary"):
            old.unlink()
        file = writer.EventFileWriter(str(folder), filename_suffix=".volary")
        return TensorBoardWriter(file, event.Event, summary.Summary, about)

    def where(self, about: About) -> str:
        return f"tensorboard --logdir {self._folder(about)}"

    def _folder(self, about: About) -> Path:
        return self.folder or about.path / "tensorboard"


class TensorBoardWriter:
    """See `volary.loggers._base.Writer`. event, summary: the messages of that name."""

    def __init__(self, file: Any, event: Any, summary: Any, about: About) -> None:
        self._file, self._event, self._summary, self._about = file, event, summary, about

    def steps(self, rows: Sequence[StepRow]) -> None:
        for step, at, figures in scalars(rows, self._about):
            self._add(step, at, figures)

    def measured(self, step: int, values: Mapping[str, float], at: float) -> None:
        self._add(step, at, named(values, self._about))

    def flush(self) -> None:
        self._file.flush()

    def close(self, state: str) -> None:
        self._file.close()

    def _add(self, step: int, at: float, figures: Mapping[str, float]) -> None:
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        self._file.add_event(self._event(wall_time=at, step=step, summary=self._summary(value=values)))


LOGGER = TensorBoard
