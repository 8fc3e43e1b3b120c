"""`python -m volary.actors SETTINGS COMMAND...` starts COMMAND below an actor of Ray's each.

It is a driver in Ray's sense, of a cluster that runs or that it starts: what it has started there ends with it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from volary.actors.cluster import ActorSettings, ask_for_places, connect, end_cluster, ray_module
from volary.actors.process import ProcessActor, place_of
from volary.run.launch.child import LOOK_S


def main() -> int:
    """Start the processes and return when all have ended: 0, or 1 if one did not end well.

    Without a COMMAND: print what the cluster has.
    """
    settings, command = ActorSettings(**json.loads(sys.argv[1])), sys.argv[2:]
    ray = ray_module()
    with tempfile.TemporaryDirectory(prefix="volary-", ignore_cleanup_errors=True) as brought:
        return _serve(ray, settings, command, Path(brought))


def _serve(ray: Any, settings: ActorSettings, command: Sequence[str], brought: Path) -> int:
    connect(ray, settings, _gathered(settings.bring, brought))
    try:
        if not command:  # asked for what the cluster has
            print(json.dumps(ray.cluster_resources()))
            return 0
        return _run(ray, settings, command)
    finally:
        if settings.address:
            ray.shutdown()
        else:
            end_cluster()


def _gathered(bring: Sequence[str], into: Path) -> dict[str, Any]:
    """Describe for Ray the working directory of each actor: these files and folders, and nothing beside them."""
    for name in bring:
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        if Path(name).is_dir():
            shutil.copytree(name, into / name, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        else:
            shutil.copy2(name, into / name)
    return {"working_dir": str(into)} if bring else {}


def _run(ray: Any, settings: ActorSettings, command: Sequence[str]) -> int:
    group = _places(ray, settings)
    nodes = _nodes(ray, group, settings)
    variables = {name: value for name, value in os.environ.items() if name.startswith("VOLARY_")}
    variables |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
    kind = ray.remote(ProcessActor)
    actors, ends = [], []
    for rank in range(settings.count):
        beside = [other for other in range(settings.count) if nodes[other] == nodes[rank]]
        where = place_of(rank, settings.count, sorted(set(nodes)).index(nodes[rank]), beside.index(rank), len(beside))
        actor = kind.options(
            num_cpus=settings.cpus,
            num_gpus=settings.gpus,
            max_concurrency=2,  # it is asked to end while it runs
            scheduling_strategy=strategy(group, placement_group_bundle_index=settings.first + rank),
        ).remote()
        actors.append(actor)
        folder = "" if settings.bring else str(Path.cwd())
        ends.append(actor.run.remote(command, folder, variables | where, settings.log))
    return _until_all_have_ended(ray, actors, ends)


def _places(ray: Any, settings: ActorSettings) -> Any:
    group = ray.util.get_placement_group(settings.held) if settings.held else ask_for_places(ray, settings)
    while not group.wait(timeout_seconds=10):  # the driver bounds this
        print(f"waiting for {settings.count} times {settings.bundle} in Ray's cluster", file=sys.stderr, flush=True)
    return group


def _nodes(ray: Any, group: Any, settings: ActorSettings) -> list[str]:
    table = ray.util.placement_group_table(group)["bundles_to_node_id"]
    return [table[settings.first + rank] for rank in range(settings.count)]


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
