"""Ray's side of `engine: ray`: `python -m volary.actors SETTINGS COMMAND...` starts COMMAND below an actor each.

It is a driver in Ray's sense, of a cluster that runs or that it starts: what it has started there ends with it. Each
actor has one process below it, which ends with the actor, so that torch and signals are in it as everywhere else.
`train` makes an actor of the user's own a worker.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from volary.run.launch.child import LOOK_S, Child
from volary.run.machine.descendants import below, end

TRIES = 3
DRAIN_LOOK_S = 1.0
OBJECT_STORE_BYTES = 80 << 20  # near the least that Ray takes: nothing of ours goes through it


@dataclass(frozen=True, kw_only=True)
class ActorSettings:
    """Settings of Ray's processes. address: of a cluster; empty: one is started here. cpus, gpus: of a process.

    spread: over as many nodes as there are, or as few as hold all. bring: what is copied to each node, from the working
    directory. log: of what processes print that have no log of their own yet.
    """

    count: int
    address: str = ""
    cpus: float = 1
    gpus: float = 0
    spread: bool = False
    bring: Sequence[str] = ()
    log: str = ""

    def words(self) -> str:
        """The settings as JSON, as the command line of `volary.actors` takes them."""
        return json.dumps(asdict(self))


class ProcessActor:
    """One process, in an actor: it is started where Ray has a place for it, and ends with the actor."""

    def __init__(self) -> None:
        self._child: Child | None = None

    def run(self, command: Sequence[str], folder: str, variables: Mapping[str, str], log: str = "") -> int:
        """Run the command to its end, and no longer than this machine's raylet; return its status.

        folder: empty: that of the actor, with what was brought. log: where it prints; empty, or not seen here: into
        Ray's log of this actor.
        """
        self._child = child = Child(command, folder, variables, log)
        drain = _DrainWatch(_ray())
        return child.wait(lambda: child.ask_to_end() if drain.has_begun() else None)

    def ask_to_end(self) -> None:
        if self._child is not None:
            self._child.ask_to_end()


class _DrainWatch:
    """Whether Ray drains the node of this process: it starts nothing more there, as the node is taken away soon."""

    def __init__(self, ray: Any) -> None:
        self._state, self._node = ray._private.state.state, ray.get_runtime_context().get_node_id()
        self._drains, self._next_s = False, time.monotonic() + DRAIN_LOOK_S

    def has_begun(self) -> bool:
        """Whether that is news; Ray is asked once in a while."""
        if self._drains or time.monotonic() < self._next_s:
            return False
        self._next_s = time.monotonic() + DRAIN_LOOK_S
        with suppress(Exception):  # whatever Ray raises where its head is away: it is asked again
            self._drains = self._node in self._state.get_draining_nodes()
        return self._drains


def train(session: str | Path, rank: int, world_size: int, overrides: Sequence[str] = (), *, launch: str = "") -> None:
    """Be rank `rank` of a run of a session file, to its end: to be called by an actor or task of Ray's.

    All ranks are of one Ray job, and see the session's `run.folder`. overrides: as `volary train` takes them. launch:
    tells the ranks of this run from those of others in the same Ray job. Raises RuntimeError if the worker did not end
    well; what it said is in the run's directory and in Ray's log of the actor.
    """
    context = _ray().get_runtime_context()
    variables = _place(rank, world_size) | {"VOLARY_RAY_LAUNCH": f"{context.get_job_id()} {launch}".strip()}
    command = [sys.executable, "-m", "volary.worker", str(session), *overrides]
    status = ProcessActor().run(command, str(Path.cwd()), variables)
    if status:
        raise RuntimeError(f"rank {rank} ended with status {status}")


def main() -> int:
    """Start the processes and return when all have ended: 0, or 1 if one did not end well.

    Without a COMMAND: print what the cluster has.
    """
    settings, command = ActorSettings(**json.loads(sys.argv[1])), sys.argv[2:]
    ray = _ray()
    with tempfile.TemporaryDirectory(prefix="volary-", ignore_cleanup_errors=True) as brought:
        return _serve(ray, settings, command, Path(brought))


def _serve(ray: Any, settings: ActorSettings, command: Sequence[str], brought: Path) -> int:
    _connect(ray, settings, _gathered(settings.bring, brought))
    try:
        if not command:  # asked for what the cluster has
            print(json.dumps(ray.cluster_resources()))
            return 0
        return _run(ray, settings, command)
    finally:
        if settings.address:
            ray.shutdown()
        else:
            _end_cluster()


def _gathered(bring: Sequence[str], into: Path) -> dict[str, Any]:
    """Describe for Ray the working directory of each actor: these files and folders, and nothing beside them."""
    for name in bring:
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        if Path(name).is_dir():
            shutil.copytree(name, into / name, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        else:
            shutil.copy2(name, into / name)
    return {"working_dir": str(into)} if bring else {}


def _connect(ray: Any, settings: ActorSettings, runtime: dict[str, Any]) -> None:
    if settings.address:
        ray.init(address=settings.address, log_to_driver=False, runtime_env=runtime)
        return
    for more in reversed(range(TRIES)):
        try:
            _start_cluster(ray, settings)
        except Exception as error:  # Ray gives its processes 30 s, which a busy machine may not have
            if not more:
                raise
            print(f"Ray did not start, and is tried again: {error}", file=sys.stderr, flush=True)
            ray.shutdown()
            _end_cluster()
        else:
            return


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


def _end_cluster() -> None:
    """The one that this process has started: an orderly end takes seconds, and nothing that it has is wanted again."""
    end(below(os.getpid()))
    shutil.rmtree(scratch(os.getpid()), ignore_errors=True)


def _ray() -> Any:
    return import_module("ray")  # of the extra `ray`; where that is missing types are checked, too


def scratch(pid: int) -> Path:
    """The folder where the cluster of process `pid` keeps its sockets, whose paths must be short, and its logs."""
    return Path(tempfile.gettempdir(), f"volary-ray-{pid}")


def _run(ray: Any, settings: ActorSettings, command: Sequence[str]) -> int:
    group = _places(ray, settings)
    nodes = _nodes(ray, group, settings.count)
    variables = {name: value for name, value in os.environ.items() if name.startswith("VOLARY_")}
    variables |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
    kind = ray.remote(ProcessActor)
    actors, ends = [], []
    for rank in range(settings.count):
        beside = [other for other in range(settings.count) if nodes[other] == nodes[rank]]
        where = _place(rank, settings.count, sorted(set(nodes)).index(nodes[rank]), beside.index(rank), len(beside))
        actor = kind.options(
            num_cpus=settings.cpus,
            num_gpus=settings.gpus,
            max_concurrency=2,  # it is asked to end while it runs
            scheduling_strategy=strategy(group, placement_group_bundle_index=rank),
        ).remote()
        actors.append(actor)
        folder = "" if settings.bring else str(Path.cwd())
        ends.append(actor.run.remote(command, folder, variables | where, settings.log))
    return _until_all_have_ended(ray, actors, ends)


def _places(ray: Any, settings: ActorSettings) -> Any:
    bundle = {"CPU": settings.cpus} | ({"GPU": settings.gpus} if settings.gpus else {})
    group = ray.util.placement_group([bundle] * settings.count, strategy="SPREAD" if settings.spread else "PACK")
    while not group.wait(timeout_seconds=10):  # the driver bounds this
        print(f"waiting for {settings.count} times {bundle} in Ray's cluster", file=sys.stderr, flush=True)
    return group


def _nodes(ray: Any, group: Any, count: int) -> list[str]:
    table = ray.util.placement_group_table(group)["bundles_to_node_id"]
    return [table[rank] for rank in range(count)]


def _place(rank: int, world_size: int, node: int = 0, local_rank: int = 0, beside: int = 0) -> dict[str, str]:
    """A process's place, as `volary.placement.ray` reads it. beside: 0 if it is not known."""
    numbers = {"RANK": rank, "WORLD_SIZE": world_size, "NODE": node, "LOCAL_RANK": local_rank, "LOCAL_SIZE": beside}
    return {f"VOLARY_RAY_{name}": str(number) for name, number in numbers.items()}


def _until_all_have_ended(ray: Any, actors: Sequence[Any], ends: Sequence[Any]) -> int:
    asked = False

    def ask(*_: object) -> None:
        nonlocal asked
        asked = True

    signal.signal(signal.SIGTERM, ask)  # Ray has set its own when it connected
    waiting, failed = list(ends), False
    while waiting:
        if asked:
            asked = False
            for actor in actors:
                actor.ask_to_end.remote()
        done, waiting = ray.wait(waiting, num_returns=1, timeout=LOOK_S)
        for ended in done:
            try:
                failed = ray.get(ended) != 0 or failed
            except ray.exceptions.RayError as error:  # the actor is gone, and with it its process
                print(str(error), file=sys.stderr, flush=True)
                failed = True
    return int(failed)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # what Ray would do at the end of Python needs its cluster
