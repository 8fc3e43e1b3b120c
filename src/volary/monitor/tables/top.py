"""All runs of a folder that are under way, one line each, read again and again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from volary.errors import RunError
from volary.monitor.digest import Digest, Follower
from volary.monitor.wording import clean, duration, measured, number, trouble
from volary.run.directory import RunDirectory

if TYPE_CHECKING:
    from rich.table import Table

LOOK_S = 1.0
HEADER = ("run", "step", "done", "left", "loss", "best", "samples/s", "workers", "newest warning")


class Top:
    """Looks at the live runs in and one level below `folder`; what it opened is closed by `close`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._followers: dict[Path, Follower] = {}

    def look(self) -> list[Digest]:
        """The runs that somebody drives now, by name."""
        live = {run.path: run for run in RunDirectory.all_below(self._folder) if run.is_live()}
        for gone in self._followers.keys() - live.keys():
            self._followers.pop(gone).close()
        found = []
        for path, run in live.items():
            try:
                follower = self._followers.get(path) or self._followers.setdefault(path, Follower(run))
                found.append(follower.look())
            except RunError:
                continue  # it may be in the making, or being removed
        return found

    def close(self) -> None:
        """Close the databases of all runs."""
        while self._followers:
            self._followers.popitem()[1].close()

    def row(self, digest: Digest) -> tuple[str, ...]:
        """A run's cells under HEADER."""
        window, planned = digest.window, digest.steps_planned
        started = window is not None and not digest.starting
        loss = digest.recorded_loss if digest.session.own_loop else window.loss if window else None
        return (
            str(digest.directory.path.relative_to(self._folder.absolute())),
            (f"{digest.step}/{planned}" if planned else str(digest.step)) if started else clean(digest.starting),
            f"{min(1.0, digest.step / planned):.0%}" if planned and started else "-",
            "stopping" if digest.stopping else duration(digest.left_s) if digest.left_s is not None else "-",
            number(loss) if loss is not None else "-",
            measured(digest.best.values) if digest.best else "-",
            number(window.samples_per_s) if window else "-",
            str(digest.workers),
            trouble(digest.warnings[-1]) if digest.warnings else "-",
        )


def as_dict(digest: Digest) -> dict[str, Any]:
    """A run in plain values, for `--json`."""
    window = digest.window
    return {
        "run": str(digest.directory.path),
        "step": digest.step,
        "steps_planned": digest.steps_planned,
        "left_s": digest.left_s,
        "loss": window.loss if window else None,
        "best": digest.best.values if digest.best else None,
        "samples_per_s": window.samples_per_s if window else None,
        "workers": digest.workers,
        "warnings": [trouble(event) for event in digest.warnings],
    }


def drawing(rows: Sequence[Sequence[str]]) -> Table:
    """The table for a terminal: as wide as that, the warning cut short."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for name in HEADER:
        table.add_column(name, no_wrap=True, overflow="ellipsis", header_style="dim")
    for cells in rows:
        table.add_row(*map(Text, cells))
    if not rows:
        table.add_row(Text("no run is under way", style="dim"))
    return table
