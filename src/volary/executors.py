"""Spark's side of `engine: spark`: `python -m volary.executors SETTINGS COMMAND...` starts COMMAND below tasks.

It is a driver in Spark's sense: of an application that it starts, of that of a running program (as `spark-submit` names
it to the Python that it starts: PYSPARK_GATEWAY_PORT), or of a Connect server. The tasks are of one barrier stage, and
each has one process below it, which ends with the task, so that torch and signals are in it as everywhere else.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import volary
from volary.errors import BadInput
from volary.run.launch.child import Child
from volary.run.machine.descendants import below, end

GATEWAY = "PYSPARK_GATEWAY_PORT"  # of the JVM of a running program, in the environment of its Python
CONNECT = "sc://"
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # a JVM that computes nothing: it is to be there soon
_FEW_SLOTS = "the cluster has fewer slots for tasks than strategy.workers; accepted: more executors, or fewer workers"
_DYNAMIC = "spark.dynamicAllocation.enabled is true, and Spark has no barrier stages then; accepted: false"
_KNOWN = {"SPARK-24819": _FEW_SLOTS, "SPARK-24942": _DYNAMIC}  # what Spark says of a stage that it refuses
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)$", re.MULTILINE)
_LOST = re.compile(r"ExecutorLostFailure \((executor [^)]*?) exited .*?\) Reason: (.*)")


@dataclass(frozen=True, kw_only=True)
class StageSettings:
    """Settings of the stage. count: of its tasks. master: as Spark names it, or the address of a Connect server.

    log: of what processes print that have no log of their own yet.
    """

    count: int
    master: str = ""
    log: str = ""

    def words(self) -> str:
        """The settings as JSON, as the command line of `volary.executors` takes them."""
        return json.dumps(asdict(self))

    @property
    def attaches(self) -> bool:
        """Whether the application is a running program's."""
        return GATEWAY in os.environ and not self.master.startswith(CONNECT)

    @property
    def is_here(self) -> bool:
        """Whether all of Spark is on this machine, and ends with this process."""
        return self.master.startswith("local") and not self.attaches


def lacks(has: Mapping[str, Any], workers: int) -> str | None:
    """Why a stage of so many tasks cannot run in an application that has this; None if it can."""
    if has["dynamic"]:
        return _DYNAMIC
    slots = has["slots"]  # None: a Connect server does not say
    if slots is not None and slots < workers:
        return f"{workers} workers take {workers} slots for tasks, and the cluster has {slots}"
    return None


def cause(error: BaseException) -> str:
    """Say why a stage failed: what Python raised first in it, or which executor was lost, without Java's trace."""
    text = str(error)
    known = next((sentence for name, sentence in _KNOWN.items() if name in text), None)
    if known is not None:
        return known
    if (raised := _RAISED.search(text)) is not None:
        return raised[1]
    if (lost := _LOST.search(text)) is not None:
        return f"{lost[1]} was lost: {lost[2]}"
    return next((line for line in text.splitlines() if line.strip()), type(error).__name__)


def scratch(pid: int) -> Path:
    """The folder where an application that process `pid` starts on this machine keeps its files."""
    return Path(tempfile.gettempdir(), f"volary-spark-{pid}")


def main() -> int:
    """Run the stage and return when all of its processes have ended: 0, or 1 if one did not end well.

    Without a COMMAND: print what the application has.
    """
    settings, command = StageSettings(**json.loads(sys.argv[1])), sys.argv[2:]
    signal.signal(signal.SIGTERM, lambda *_: _asked_to_end(settings))
    warnings.filterwarnings("ignore", category=FutureWarning)  # of versions of pandas, which nothing here uses
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        spark = _session(settings)
        try:
            if command:
                return _run(spark, settings, command)
            print(json.dumps(_has(spark, settings)))
            return 0
        finally:
            _leave(spark, settings)
    except BadInput as error:
        print(error, file=sys.stderr)
        return BadInput.exit_code
    except Exception as error:  # Spark raises Java's errors by many names
        print(cause(error), file=sys.stderr)
        return 1
    finally:
        if settings.is_here:
            _end_here()


def _asked_to_end(settings: StageSettings) -> None:
    if settings.is_here:
        _end_here()
        os._exit(1)  # before py4j reports that its JVM is gone
    sys.exit(1)  # the stage is cancelled, or ends with its application


def _end_here() -> None:
    """What this process has started: an orderly end takes seconds, and nothing that it has is wanted again."""
    end(below(os.getpid()))
    shutil.rmtree(scratch(os.getpid()), ignore_errors=True)


def _session(settings: StageSettings) -> Any:
    sql = import_module("pyspark.sql")  # of the extra `spark`; where that is missing types are checked, too
    if settings.master.startswith(CONNECT):
        return sql.SparkSession.builder.remote(settings.master).getOrCreate()
    if settings.attaches:
        return _attached(sql)
    os.environ["SPARK_CONNECT_MODE"] = "0"
    builder = sql.SparkSession.builder.appName("volary").master(settings.master)
    given = {
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": _QUICK,
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",  # executors take some seconds to be there
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }
    if settings.is_here:
        folder = scratch(os.getpid())
        os.environ |= {"SPARK_LOCAL_DIRS": str(folder), "SPARK_WORKER_DIR": str(folder / "work")}
        os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1"}
        given |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        if settings.master.startswith("local-cluster"):
            given |= {"spark.authenticate": "true", "spark.authenticate.secret": secrets.token_hex(32)}
    for name, value in given.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _attached(sql: Any) -> Any:
    """The session of the program whose JVM it is."""
    core = import_module("pyspark")
    gateway = import_module("pyspark.java_gateway").launch_gateway()
    context = gateway.jvm.JavaSparkContext.fromSparkContext(gateway.jvm.org.apache.spark.SparkContext.getOrCreate())
    conf = core.SparkConf(_jvm=gateway.jvm, _jconf=context.getConf())
    return sql.SparkSession(core.SparkContext(gateway=gateway, jsc=context, conf=conf))


def _leave(spark: Any, settings: StageSettings) -> None:
    """End an application that was started, unless it ends with this process."""
    if not (settings.attaches or settings.is_here):
        spark.stop()


def _has(spark: Any, settings: StageSettings) -> dict[str, Any]:
    slots = None
    if not settings.master.startswith(CONNECT):
        context = spark.sparkContext._jsc.sc()
        slots = context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile())
    return {"slots": slots, "dynamic": spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true"}


def _run(spark: Any, settings: StageSettings, command: Sequence[str]) -> int:
    # slots are looked at by Spark: executors of an application that has just begun are not there yet
    if (reason := lacks(_has(spark, settings) | {"slots": None}, settings.count)) is not None:
        raise BadInput(reason)
    tag = f"volary-{os.getpid()}"
    spark.addTag(tag)
    try:
        stage = spark.range(0, settings.count, 1, settings.count).mapInArrow(
            _task(_Order.of(settings, command).words()), "status long", barrier=True
        )
        return int(any(row["status"] for row in stage.collect()))
    except BaseException:  # this process is asked to end, say; an application of its own ends with it
        with suppress(Exception):  # what is to be cancelled may have ended
            spark.interruptTag(tag)
        raise


@dataclass(frozen=True, kw_only=True)
class _Order:
    """What each task starts, with the driver's variables. python: the driver's, for which a task takes its own."""

    version: str
    command: Sequence[str]
    python: str
    folder: str
    variables: Mapping[str, str]
    log: str

    @classmethod
    def of(cls, settings: StageSettings, command: Sequence[str]) -> _Order:
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


def _task(order: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What a task of the stage runs; it travels as it is, and looks for Volary itself where it has arrived."""

    def run(_: Iterator[Any]) -> Iterator[Any]:
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
        from volary.executors import be_task

        yield from be_task(order)

    return run


def be_task(order: str) -> Iterator[Any]:
    """Start this task's process, wait for its end, and yield its status, as Arrow has it."""
    pyarrow: Any = import_module("pyarrow")
    told, context = _Order(**json.loads(order)), import_module("pyspark").BarrierTaskContext.get()
    hosts = [info.address.rpartition(":")[0] for info in context.getTaskInfos()]
    gpus = context.resources()["gpu"].addresses if "gpu" in context.resources() else []
    variables = dict(told.variables) | _place(context.partitionId(), hosts, own_devices=bool(gpus))
    variables |= {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}
    python = str(Path(sys.executable).absolute())  # relative to the task's folder, if an archive brought it
    command = [python if word == told.python else word for word in told.command]
    child = Child(command, told.folder if Path(told.folder).is_dir() else "", variables, told.log)
    try:
        status = child.wait()
    finally:
        child.kill()  # if the stage is cancelled
    yield pyarrow.RecordBatch.from_pydict({"status": pyarrow.array([status], pyarrow.int64())})


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


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # what Spark would do at the end of Python needs its JVM
