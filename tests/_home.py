"""A run's directory, and the driver's end of the service that receives files into it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from volary.comm.control.server import KeyedServer
from volary.comm.files.client import FileClient
from volary.comm.files.messages import SERVICE
from volary.comm.files.receiver import FileReceiver
from volary.run.directory import RunDirectory


@dataclass
class Home:
    """told: events."""

    directory: RunDirectory
    server: KeyedServer
    files: FileReceiver
    told: list[tuple[str, int, dict[str, Any]]] = field(default_factory=list)

    def client(self, number: int = 0) -> FileClient:
        """The client of the worker of this rank."""
        host, port = self.server.address
        return FileClient.open(host, port, self.directory.key(), self.server.attempt_id, "worker", number)


@contextmanager
def receiving() -> Iterator[Home]:
    """A new run `runs/it` that keeps two checkpoints."""
    directory = RunDirectory.create(Path("runs"), "it", "x", "network: lenet\n")
    told: list[tuple[str, int, dict[str, Any]]] = []
    files = FileReceiver(directory, lambda found: found.keep(2, keep_best=False), lambda *what: told.append(what))
    with KeyedServer(directory.key(), {SERVICE: files.reception}) as server:
        yield Home(directory, server, files, told)
    files.close()
