"""What a task of the stage does: it starts its process, and waits for its end."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import volary
from volary.executors.stage import FRAME, KEY, ROWS, StageSettings
from volary.run.launch.child import Child


@dataclass(frozen=True, kw_only=True)
class TaskOrder:
    """What each task starts, with the driver's variables. python: the driver's, for which a task takes its own."""

    version: str
    command: Sequence[str]
    python: str
    folder: str
    variables: Mapping[str, str]
    log: str

    @classmethod
    def of(cls, settings: StageSettings, command: Sequence[str]) -> TaskOrder:
        ours = {name: value for name, value in os.environ.items() if name.startswith("VOLARY_")}
        return cls(
            version=volary.__version__,
            command=command,
            python=sys.executable,
            folder=str(Path.cwd()),
            variables=ours | {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ},
            log=settings.log,
        )

    def words(self) -> str:
        return json.dumps(asdict(self))


def task(order: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What a task of the stage runs; it travels as it is, and looks for Volary itself where it has arrived."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import json
        import socket
        from importlib.util import find_spec

        wanted = json.loads(order)["version"]
        if find_spec("volary") is None:
            raise RuntimeError(f"executor on {socket.gethostname()}: Volary is not installed; accepted: {wanted}")
        import volary

        if volary.__version__ != wanted:
            raise RuntimeError(
                f"executor on {socket.gethostname()}: has Volary {volary.__version__}; accepted: the driver's, {wanted}"
            )
        from volary.executors.task import be_task

        yield from be_task(order, batches)

    return run


def be_task(order: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Start this task's process, wait for its end, and yield its status, as Arrow has it.

    batches: rows of the run's frames, if it has some, which are served while the process runs.
    """
    pyarrow: Any = import_module("pyarrow")
    task_order, context = TaskOrder(**json.loads(order)), import_module("pyspark").BarrierTaskContext.get()
    hosts = [info.address.rpartition(":")[0] for info in context.getTaskInfos()]
    gpus = context.resources()["gpu"].addresses if "gpu" in context.resources() else []
    variables = dict(task_order.variables) | _place(context.partitionId(), hosts, own_devices=bool(gpus))
    variables |= {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}
    python = str(Path(sys.executable).absolute())  # relative to the task's folder, if an archive brought it
    command = [python if word == task_order.python else word for word in task_order.command]
    with _served(context, hosts, variables, batches) as more:
        child = Child(
            command, task_order.folder if Path(task_order.folder).is_dir() else "", variables | more, task_order.log
        )
        try:
            status = child.wait()
        finally:
            child.kill()  # if the stage is cancelled
        if ROWS in more:
            context.barrier()  # others may still ask for rows of this task
    yield pyarrow.RecordBatch.from_pydict({"status": pyarrow.array([status], pyarrow.int64())})


@contextmanager
def _served(
    context: Any, hosts: Sequence[str], variables: Mapping[str, str], batches: Iterator[Any]
) -> Iterator[dict[str, str]]:
    """Serve this task's rows of the frames meanwhile, if there are any; give variables by which they are found."""
    if FRAME not in variables:
        for _ in batches:  # each task has one row, which says nothing
            pass
        yield {}
        return
    # numpy and the keyed server, which a run without frames does not need
    from volary.comm.control.server import KeyedServer
    from volary.executors.arrays import ColumnLayout
    from volary.executors.frame import SERVICE, HeldRows

    held = HeldRows(batches, ColumnLayout(**json.loads(variables[FRAME])["layout"]))
    host = hosts[context.partitionId()] if len(set(hosts)) > 1 else "127.0.0.1"
    with KeyedServer(bytes.fromhex(variables[KEY]), {SERVICE: held}, host) as server:
        mine = held.announcement(*server.address, context.attemptNumber())
        all_of_them = [json.loads(words) for words in context.allGather(json.dumps(mine))]
        with tempfile.NamedTemporaryFile("w", prefix="volary-rows-", suffix=".json") as file:
            json.dump(all_of_them, file)
            file.flush()
            yield {ROWS: file.name}


def _place(rank: int, hosts: Sequence[str], *, own_devices: bool) -> dict[str, str]:
    """A process's place, as `volary.placement.spark` reads it. hosts: of each rank."""
    beside = [other for other, host in enumerate(hosts) if host == hosts[rank]]
    numbers = {
        "RANK": rank,
        "WORLD_SIZE": len(hosts),
        "NODE": list(dict.fromkeys(hosts)).index(hosts[rank]),
        "LOCAL_RANK": beside.index(rank),
        "BESIDE": len(beside),
        "OWN_DEVICES": int(own_devices),
    }
    return {f"VOLARY_SPARK_{name}": str(number) for name, number in numbers.items()}
