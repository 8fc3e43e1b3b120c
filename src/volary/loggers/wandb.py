"""Weights & Biases. Offline unless asked otherwise: nothing leaves the machine. Needs the package wandb."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal

from volary.loggers._base import About, named, scalars
from volary.run.database.journal import StepRow
from volary.run.disk import refuse_unwritable


@dataclass(frozen=True, kw_only=True)
class WandB:
    """A run of W&B under this run's name, with its settings as configuration."""

    package: ClassVar[str | None] = "wandb"
    project: str = "volary"  # the project
    entity: str | None = None  # the user or team; default: the one that is logged in
    mode: Literal["offline", "online"] = "offline"  # offline: `wandb sync` sends it later; online: sent as it trains
    folder: Path | None = None  # where the offline copy is (default: `wandb` in the run)

    def check(self) -> None:
        if self.folder is not None:
            refuse_unwritable("wandb: folder", self.folder, make=True)

    def open(self, about: About) -> WandBWriter:
        """A run of W&B; the same one if this run was copied before."""
        wandb = import_module("wandb")
        folder = self._folder(about)
        folder.mkdir(parents=True, exist_ok=True)
        run = wandb.init(
            project=self.project,
            entity=self.entity,
            name=about.name,
            id=re.sub(r"[^A-Za-z0-9-]", "-", f"{about.name}-{about.started_at:.0f}"),
            config=dict(about.settings),
            dir=str(folder),
            mode=self.mode,
            resume="allow" if self.mode == "online" else None,
            settings=wandb.Settings(console="off", silent=True, x_disable_stats=True, save_code=False),
        )
        return WandBWriter(run, about)

    def where(self, about: About) -> str:
        folder = self._folder(about)
        return f"wandb sync {folder}/wandb/offline-*" if self.mode == "offline" else f"the project {self.project}"

    def _folder(self, about: About) -> Path:
        return self.folder or about.path / "wandb"


class WandBWriter:
    """See `volary.loggers._base.Writer`. An evaluation comes after its step, so it is sent with the step's number."""

    def __init__(self, run: Any, about: About) -> None:
        self._run, self._about = run, about
        run.define_metric("step")
        run.define_metric("*", step_metric="step")

    def steps(self, rows: Sequence[StepRow]) -> None:
        for step, _, figures in scalars(rows, self._about):
            self._run.log(figures | {"step": step})

    def measured(self, step: int, values: Mapping[str, float], at: float) -> None:
        self._run.log(named(values, self._about) | {"step": step})

    def flush(self) -> None:
        """Do nothing: W&B writes by itself."""

    def close(self, state: str) -> None:
        """The run is over: well, or not."""
        self._run.finish(exit_code=0 if state in ("finished", "stopped") else 1)


LOGGER = WandB
