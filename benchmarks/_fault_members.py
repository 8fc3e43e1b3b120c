"""The processes of a run, by what they are, and how far it is: read from its directory while it runs."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import psutil

from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory


@dataclass(frozen=True)
class Members:
    """By name: `driver`, `worker 1`, `server 0`, `helper 123`; helpers are whatever else the driver has started."""

    by_name: dict[str, psutil.Process]

    @classmethod
    def of(cls, folder: Path, driver: int) -> Members:
        """The members of the run in `folder`, whose command is process `driver`."""
        info = _info(folder)
        _, *workers = json.loads(info.get("pids", "[0]"))
        known = {pid: f"worker {rank}" for rank, pid in enumerate(workers)}
        known |= {pid: f"server {number}" for number, pid in enumerate(json.loads(info.get("server_pids", "[]")))}
        found: dict[str, psutil.Process] = {}
        with suppress(psutil.Error):
            command = psutil.Process(driver)
            found["driver"] = command
            for child in sorted(command.children(recursive=True), key=lambda one: one.pid):
                found[known.get(child.pid, f"helper {child.pid}")] = child
        return cls(found)

    def choose(self, kind: str, random: Random) -> tuple[str, psutil.Process] | None:
        """One of a kind, or any where there is none of it."""
        of_kind = [each for each in self.by_name.items() if each[0].startswith(kind)]
        candidates = of_kind or list(self.by_name.items())
        return random.choice(candidates) if candidates else None


def newest_step(folder: Path, attempt: int) -> int:
    """The step that the run's start number `attempt` is at; 0 before its first."""
    info = _info(folder)
    if int(info.get("life", -1)) < attempt:
        return 0
    with suppress(Exception), RunReader(_directory(folder)) as reader:  # it is being written
        return max(reader.last_step(), int(info.get("steps_now", 0)))
    return 0


def _info(folder: Path) -> dict[str, Any]:
    with suppress(Exception), RunReader(_directory(folder)) as reader:
        return dict(reader.info())
    return {}


def _directory(folder: Path) -> RunDirectory:
    return RunDirectory(folder / "runs" / "it")
