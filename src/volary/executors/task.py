"""A task of the stage: it starts its process, and waits for its end."""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from volary.executors.stage import KEY, ROWS, StageSettings
from volary.run.launch.assignment import MEET
from volary.run.launch.child import Child

_REACH_S = 15.0  # for a connection to the run's driver


@dataclass(frozen=True, kw_only=True)
class TaskOrder:
    """The command that each task starts, with the driver's variables. python: the driver's; a task takes its own.

    rows: what workers are to know of the rows of the run's frames, as JSON; empty: it has none.
    """

    command: Sequence[str]
    python: str
    folder: str
    variables: Mapping[str, str]
    log: str
    rows: str = ""

    @classmethod
    def of(cls, settings: StageSettings, command: Sequence[str], rows: str = "") -> TaskOrder:
        ours = {name: value for name, value in os.environ.items() if name.startswith("VOLARY_")}
        return cls(
            command=command,
            python=sys.executable,
            folder=str(Path.cwd()),
            variables=ours | {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ},
            log=settings.log,
            rows=rows,
        )

    def words(self) -> str:
        return json.dumps(asdict(self))


def be_task(order: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Start this task's process, wait for its end, and yield its status, as Arrow has it."""
    task_order = TaskOrder(**json.loads(order))
    _require_reached(task_order.variables[MEET])
    pyarrow: Any = import_module("pyarrow")
    context = import_module("pyspark").BarrierTaskContext.get()
    for _ in batches:  # each task has one row, which says nothing
        pass
    hosts = [info.address.rpartition(":")[0] for info in context.getTaskInfos()]
    gpus = context.resources()["gpu"].addresses if "gpu" in context.resources() else []
    variables = dict(task_order.variables) | _place(context.partitionId(), hosts, own_devices=bool(gpus))
    variables |= {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}
    python = str(Path(sys.executable).absolute())  # relative to the task's folder, if an archive brought it
    command = [python if word == task_order.python else word for word in task_order.command]
    with _rows(task_order, context.partitionId(), len(hosts)) as more:
        child = Child(
            command, task_order.folder if Path(task_order.folder).is_dir() else "", variables | more, task_order.log
        )
        try:
            status = child.wait()
            if more:
                context.barrier()  # others may still ask for rows that this task keeps
        finally:
            child.kill()  # if the stage is cancelled
    yield pyarrow.RecordBatch.from_pydict({"status": pyarrow.array([status], pyarrow.int64())})


def _require_reached(driver: str) -> None:
    """Raise RuntimeError, with the address that was tried, if this machine does not reach the run's driver there."""
    host, _, port = driver.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_S).close()
    except OSError as error:
        raise RuntimeError(
            f"executor on {socket.gethostname()} does not reach the run's driver at {driver}: {error.strerror or error}"
            "; accepted: to start the run on a machine that executors reach, as one of the cluster"
        ) from None


@contextmanager
def _rows(order: TaskOrder, number: int, tasks: int) -> Iterator[dict[str, str]]:
    """Keep this task's share of the processes that hold the run's rows; give the variable that says where these are."""
    if not order.rows:
        yield {}
        return
    from volary.executors.holding import claimed  # numpy and the keyed server, which a run without frames does not need

    key, held = bytes.fromhex(order.variables[KEY]), json.loads(order.rows)["tasks"]
    with tempfile.TemporaryDirectory(prefix="volary-rows-") as folder, ExitStack() as kept:
        for one in held[number::tasks]:
            if "port" in one:
                kept.enter_context(claimed(one, key))
        file = Path(folder, "rows.json")
        file.write_text(order.rows)
        yield {ROWS: str(file)}


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
