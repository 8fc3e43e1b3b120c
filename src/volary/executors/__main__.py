"""`python -m volary.executors SETTINGS COMMAND...` starts COMMAND below tasks of one barrier stage.

It is a driver in Spark's sense: of an application that it starts, of that of a running program (as `spark-submit` names
it to the Python that it starts: PYSPARK_GATEWAY_PORT), or of a Connect server. Each task has one process below it,
which ends with the task, so that torch and signals are in it as everywhere else.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from volary.errors import BadInput
from volary.executors.application import attached, resources
from volary.executors.feeding import fed
from volary.executors.frame import HandedFrames
from volary.executors.sent import sent
from volary.executors.stage import CONNECT, FED, KEY, StageSettings, cause, lacks, scratch
from volary.executors.task import TaskOrder, be_task
from volary.run.machine.descendants import below, end

_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # a JVM that computes nothing: it is to be there soon


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
    """End what this process has started: an orderly end takes seconds, and nothing that it has is wanted again."""
    end(below(os.getpid()))
    shutil.rmtree(scratch(os.getpid()), ignore_errors=True)


def _session(settings: StageSettings) -> Any:
    sql = import_module("pyspark.sql")  # of the extra `spark`; where that is missing types are checked, too
    if settings.master.startswith(CONNECT):
        return sql.SparkSession.builder.remote(settings.master).getOrCreate()
    if settings.attaches:
        return attached()
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


def _leave(spark: Any, settings: StageSettings) -> None:
    """End an application that was started, unless it ends with this process."""
    if not (settings.attaches or settings.is_here):
        spark.stop()


def _has(spark: Any, settings: StageSettings) -> dict[str, Any]:
    return resources(spark, connect=settings.master.startswith(CONNECT))


def _run(spark: Any, settings: StageSettings, command: Sequence[str]) -> int:
    # slots are looked at by Spark: executors of an application that has just begun are not there yet
    if (reason := lacks(_has(spark, settings) | {"slots": None}, settings.count)) is not None:
        raise BadInput(reason)
    tag = f"volary-{os.getpid()}"
    spark.addTag(tag)
    try:
        frames = HandedFrames.found()
        rows = "" if frames is None else json.dumps(_rows(spark, frames, settings.count))
        order = TaskOrder.of(settings, command, rows).words()
        numbers = spark.range(0, settings.count, 1, settings.count)
        stage = numbers.mapInArrow(sent(partial(be_task, order)), "status long", barrier=True)
        return int(any(row["status"] for row in stage.collect()))
    except BaseException:  # this process is asked to end, say; an application of its own ends with it
        with suppress(Exception):  # what is to be cancelled may have ended
            spark.interruptTag(tag)
        raise


def _rows(spark: Any, frames: HandedFrames, workers: int) -> dict[str, Any]:
    """The rows as they were taken before the run; they went with their workers if it is resumed: take them anew."""
    file = Path(os.environ[FED])
    if file.is_file():
        rows: dict[str, Any] = json.loads(file.read_text())
        file.unlink()
    else:
        rows = fed(spark, frames, workers)
    os.environ[KEY] = rows.pop("key")
    return rows


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # what Spark would do at the end of Python needs its JVM
