"""The stage that `python -m volary.executors` is asked for, and in which words it fails."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

GATEWAY = "PYSPARK_GATEWAY_PORT"  # of the JVM of a running program, in the environment of its Python
CONNECT = "sc://"
REMOTE = "SPARK_REMOTE"  # the address of a Connect server, as PySpark itself names the variable
FRAME = "VOLARY_SPARK_FRAME"  # the variable that says which frames a run has
FED = "VOLARY_SPARK_FED"  # the path of the file of which processes hold the frames' rows, and the key; read once
KEY = "VOLARY_SPARK_KEY"  # of the connections between workers and tasks; drawn for one stage
ROWS = "VOLARY_SPARK_ROWS"  # the path of the file of what all tasks have announced, once they have; of a worker
_FEW_SLOTS = "the cluster has fewer slots for tasks than strategy.workers; accepted: more executors, or fewer workers"
_DYNAMIC = "spark.dynamicAllocation.enabled is true, and Spark has no barrier stages then; accepted: false"
_BARRIERS_SINCE = (3, 5)  # of `mapInArrow`
_KNOWN = {"SPARK-24819": _FEW_SLOTS, "SPARK-24942": _DYNAMIC}  # what Spark says of a stage that it refuses
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)$", re.MULTILINE)
_LESS = (
    "accepted: more spark.executor.memory, or fewer rows at once (spark.sql.parquet.columnarReaderBatchSize, "
    "spark.sql.execution.arrow.maxRecordsPerBatch)"
)
_CODES = {  # with which an executor ends, and what that means
    52: f"its Java heap was full; {_LESS}",
    137: "it was killed, as the system does when memory is full; then accepted: more spark.executor.memoryOverhead",
}
_CODE = re.compile(r"[Ee]xit(?:ed with)? (?:code|status):? (\d+)")
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
    """Why a stage of so many tasks cannot run in an application that has this; None if it can, as far as is known."""
    version = has.get("version", "")
    if version and tuple(map(int, version.split(".")[:2])) < _BARRIERS_SINCE:
        return f"the cluster has Spark {version}, whose mapInArrow knows no barrier; accepted: 3.5 or newer"
    if has["dynamic"]:
        return _DYNAMIC
    slots = has["slots"]  # None: not known
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
        return raised[1].removeprefix("volary.errors.BadInput: ")  # a whole sentence
    if (lost := _LOST.search(text)) is not None:
        code = _CODE.search(lost[2])
        meaning = None if code is None else _CODES.get(int(code[1]))
        return f"{lost[1]} was lost: {lost[2]}" + ("" if meaning is None else f": {meaning}")
    return next((line for line in text.splitlines() if line.strip()), type(error).__name__)


def scratch(pid: int) -> Path:
    """The folder where an application that process `pid` starts on this machine keeps its files."""
    return Path(tempfile.gettempdir(), f"volary-spark-{pid}")
