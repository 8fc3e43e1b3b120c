"""A task of the stage: it starts its process, and waits for its end."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import volary
from volary.executors.stage import FRAME, KEY, ROWS, StageSettings
from volary.run.launch.child import Child


@dataclass(frozen=True, kw_only=True)
class TaskOrder:
    """The command that each task starts, with the driver's variables. python: the driver's; a task takes its own.

    asked_at: when the stage was asked for, of time.time().
    """

    version: str
    command: Sequence[str]
    python: str
    folder: str
    variables: Mapping[str, str]
    log: str
    asked_at: float

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
            asked_at=time.time(),
        )

    def words(self) -> str:
        return json.dumps(asdict(self))


def task(order: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function that a task of the stage runs; it travels as it is, and looks for Volary where it arrives."""

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
    with _row_file(variables) as more:
        child = Child(  # before there are rows: it has much to import
            command, task_order.folder if Path(task_order.folder).is_dir() else "", variables | more, task_order.log
        )
        try:
            if more:
                with served(context, hosts, variables, batches, Path(more[ROWS]), task_order.asked_at):
                    status = child.wait()
                    context.barrier()  # others may still ask for rows of this task
            else:
                for _ in batches:  # each task has one row, which says nothing
                    pass
                status = child.wait()
        finally:
            child.kill()  # if the stage is cancelled
    yield pyarrow.RecordBatch.from_pydict({"status": pyarrow.array([status], pyarrow.int64())})


@contextmanager
def _row_file(variables: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The variable that says where the announcements of rows will be, if the run has frames."""
    if FRAME not in variables:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="volary-rows-") as folder:
        yield {ROWS: str(Path(folder, "rows.json"))}


@contextmanager
def served(
    context: Any,
    hosts: Sequence[str],
    variables: Mapping[str, str],
    batches: Iterator[Any],
    file: Path,
    asked_at: float,
) -> Iterator[None]:
    """Take this task's rows of the run's frames and serve them meanwhile; `file` is there once all tasks do so.

    What is wrong with the rows is in it, too: all workers end with that sentence.
    """
    # numpy and the keyed server, which a run without frames does not need
    from volary.comm.control.server import KeyedServer
    from volary.errors import BadInput
    from volary.executors.frame import SERVICE, HandedFrames, HeldRows

    frames = HandedFrames.read(variables[FRAME])
    host = hosts[context.partitionId()] if len(set(hosts)) > 1 else "127.0.0.1"
    with ExitStack() as serving:
        try:
            held = HeldRows(batches, frames.layout, frames.keep_bytes)
            server = serving.enter_context(KeyedServer(bytes.fromhex(variables[KEY]), {SERVICE: held}, host))
            seconds = max(0.0, time.time() - asked_at)  # by two machines' clocks
            mine = held.announcement(*server.address, context.attemptNumber()) | {"seconds": seconds}
        except BadInput as error:
            mine = {"refused": str(error)}
        tasks = [json.loads(words) for words in context.allGather(json.dumps(mine))]
        draft = file.with_suffix(".draft")
        draft.write_text(json.dumps({"rows": frames.rows, "classes": frames.classes, "tasks": tasks}))
        draft.rename(file)
        yield


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
