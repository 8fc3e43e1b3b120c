"""The engines that the contract is tested with, and what each needs to be had here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from volary.engine import ROOM
from volary.engine._base import Engine

CHECKOUT = Path(__file__).resolve().parents[2]


def mpirun(name: str) -> str:
    """The launcher of PyPI's package of this name, as `make engines` installs it."""
    return str(CHECKOUT / ".engines" / name / "bin" / "mpirun")


RAY = CHECKOUT / ".engines" / "ray"  # PyPI's package, and what it needs
SPARK = CHECKOUT / ".engines" / "spark"


@dataclass(frozen=True)
class Tried:
    """One way to start a run. settings: overrides. launcher: what stands between driver and workers, by its name.

    guarded: the launcher's own ports are open beyond loopback, and ask who comes. queued: the driver is in a job, and
    the command only follows it. needs: a fixture that starts a cluster or an sshd of its own, which takes its time.
    """

    name: str
    settings: tuple[str, ...]
    launcher: str
    guarded: bool = False
    queued: bool = False
    needs: str = ""

    @property
    def engine(self) -> Engine:
        """With these settings."""
        pairs = (one.removeprefix("engine.").split("=", 1) for one in self.settings[1:])
        values = {name: yaml.safe_load(value) for name, value in pairs}
        found: Engine = ROOM.load(self.settings[0].removeprefix("engine="))(**values)
        return found

    def why_not(self) -> str | None:
        """Why it cannot be had here; None if it can."""
        return self.engine.check(2)


TRIED = [
    Tried("torchrun", ("engine=torchrun",), "torchrun"),
    Tried("torchrun-hosts", ("engine=torchrun", "engine.nodes=[alpha:2]"), "ssh alpha", needs="ssh"),
    *(Tried(name, ("engine=mpi", f"engine.mpirun={mpirun(name)}"), "mpirun") for name in ("openmpi", "mpich")),
    Tried("slurm", ("engine=slurm",), "srun", guarded=True, needs="allocation"),
    Tried("slurm-job", ("engine=slurm",), "srun", guarded=True, queued=True, needs="slurm"),
    Tried("ray", ("engine=ray",), "ray", guarded=True, needs="ray"),
    Tried("spark", ("engine=spark",), "spark", needs="spark"),
    Tried(
        "hosts",
        ("engine=hosts", "engine.hosts=[alpha:2]", "engine.ssh=ssh -F ssh_config"),
        "ssh alpha",
        needs="hosts",
    ),
]


def every() -> list[Tried]:
    """All engines there are: as above, or with their defaults."""
    known = {one.settings[0] for one in TRIED}
    others = [Tried(name, (f"engine={name}",), "") for name in ROOM.names() if f"engine={name}" not in known]
    return [*others, *(one for one in TRIED if not one.queued)]
