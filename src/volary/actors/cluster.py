"""A cluster of Ray's that runs, or that is started here; and places in it, a bundle of a placement group each."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from volary.run.machine.descendants import below, end

TRIES = 3
NAMESPACE = "volary"  # in which a job finds the places that it holds
OBJECT_STORE_BYTES = 80 << 20  # near the least that Ray takes: nothing of ours goes through it


@dataclass(frozen=True, kw_only=True)
class ActorSettings:
    """Settings of Ray's processes. address: of a cluster; empty: one is started here. cpus, gpus: of a process.

    spread: over as many nodes as there are, or as few as hold all. bring: what is copied to each node, from the working
    directory. log: of what processes print that have no log of their own yet. held: the name of the places that a job
    holds for its run; empty: they are asked for. first: of the first process there.
    """

    count: int
    address: str = ""
    cpus: float = 1
    gpus: float = 0
    spread: bool = False
    bring: Sequence[str] = ()
    log: str = ""
    held: str = ""
    first: int = 0

    @property
    def bundle(self) -> dict[str, float]:
        """A process's share of Ray's resources."""
        return {"CPU": self.cpus} | ({"GPU": self.gpus} if self.gpus else {})

    def words(self) -> str:
        """The settings as JSON, as the command line of `volary.actors` takes them."""
        return json.dumps(asdict(self))


def ray_module() -> Any:
    """Ray, of the extra `ray`: where that is missing types are checked, too."""
    return import_module("ray")


def connect(ray: Any, settings: ActorSettings, runtime: dict[str, Any]) -> None:
    """Be a driver of it, to which each of its actors has the runtime environment `runtime`."""
    if settings.address:
        ray.init(address=settings.address, namespace=NAMESPACE, log_to_driver=False, runtime_env=runtime)
        return
    for more in reversed(range(TRIES)):
        try:
            _start_cluster(ray, settings)
        except Exception as error:  # Ray gives its processes 30 s, which a busy machine may not have
            if not more:
                raise
            print(f"Ray did not start, and is tried again: {error}", file=sys.stderr, flush=True)
            ray.shutdown()
            end_cluster()
        else:
            return


def ask_for_places(ray: Any, settings: ActorSettings, name: str = "") -> Any:
    """Ask for all places at once, which Ray grants as soon as they are free, or not at all."""
    strategy = "SPREAD" if settings.spread else "PACK"
    return ray.util.placement_group([settings.bundle] * settings.count, strategy=strategy, name=name)


def end_cluster() -> None:
    """The one that this process has started: an orderly end takes seconds, and nothing that it has is wanted again."""
    end(below(os.getpid()))
    shutil.rmtree(scratch(os.getpid()), ignore_errors=True)


def scratch(pid: int) -> Path:
    """The folder where the cluster of process `pid` keeps its sockets, whose paths must be short, and its logs."""
    return Path(tempfile.gettempdir(), f"volary-ray-{pid}")


def _start_cluster(ray: Any, settings: ActorSettings) -> None:
    ray.init(
        address="local",
        num_cpus=max(1, round(settings.count * settings.cpus)),
        num_gpus=round(settings.count * settings.gpus) or None,
        include_dashboard=False,
        object_store_memory=OBJECT_STORE_BYTES,
        log_to_driver=False,
        _temp_dir=str(scratch(os.getpid())),
    )
