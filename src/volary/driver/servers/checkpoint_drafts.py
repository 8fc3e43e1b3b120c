"""Checkpoints of a run with parameter servers: they write their files, here these become one that counts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from volary.run.checkpoints import ROSTER, Checkpoints, read
from volary.run.database.journal import Journal
from volary.session.spec import Checkpoint, OwnCheckpoint


class CheckpointDrafts:
    """Opens drafts of `checkpoints` and commits them, for the roster. Both raise OSError; then older ones stay.

    newest: what there is to say of the last one that was committed.
    """

    def __init__(self, checkpoints: Checkpoints, settings: Checkpoint | OwnCheckpoint, servers: int) -> None:
        self.newest: dict[str, Any] = {}
        self._checkpoints, self._settings, self._servers = checkpoints, settings, servers
        self._began_at = 0.0

    def begin(self, step: int) -> None:
        self._began_at = time.perf_counter()
        self._checkpoints.begin(step)

    def give_up(self, step: int) -> None:
        """Leave nothing of the draft of `step`."""
        self._checkpoints.give_up(step)

    def commit(self, step: int, files: Mapping[str, str], state: Mapping[str, Any], metric: float | None) -> None:
        """Let the draft of `step` count. files: checksums of the servers. state: of the roster. metric: if best."""
        own = {ROSTER: self._checkpoints.write(step, ROSTER, msgspec.json.encode(state))}
        path = self._checkpoints.commit(step, self._servers, dict(files) | own, metric)
        self.newest = {"path": str(path), "seconds": time.perf_counter() - self._began_at}
        self._checkpoints.keep(self._settings.keep_last, keep_best=self._settings.keep_best)


def restored(checkpoints: Checkpoints, journal: Journal) -> tuple[int, dict[str, Any]] | None:
    """The step of the newest whole checkpoint and the roster's state in it, if the run has one.

    Damaged ones are reported and set aside. Raises RunError if all are damaged.
    """
    manifest, warnings = checkpoints.take_up()
    for text in warnings:
        journal.event("warning", text=text)
    if manifest is None:
        return None
    journal.event("resumed", None, manifest.step, from_step=manifest.step)
    return manifest.step, msgspec.json.decode(read(checkpoints.path(manifest.step), manifest, ROSTER))
