"""Where a simulated run's checkpoints go."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from simulation._history import History, Saved
from simulation._server import Disk


class Checkpoints:
    """Checkpoints that nobody but promises checks. files: of each draft, by slice; servers write there."""

    def __init__(self, history: History, disk: Disk) -> None:
        self._history, self._disk = history, disk

    def begin(self, step: int) -> Future[None]:
        """An empty draft."""
        for disk in (self._disk, self._history.residuals):
            for place in [place for place in disk if place[0] == step]:
                del disk[place]
        return _done()

    def give_up(self, step: int) -> None:
        """Nothing fails here."""

    def commit(self, step: int, files: dict[str, str], state: dict[str, Any], metric: float | None) -> Future[None]:
        """Let the checkpoint count."""
        written = {number: value for (of, number), value in self._disk.items() if of == step}
        residuals = {rank: value for (of, rank), value in self._history.residuals.items() if of == step}
        self._history.saved.append(Saved(step, state, written, residuals))
        return _done()


def _done() -> Future[None]:
    done: Future[None] = Future()
    done.set_result(None)
    return done
