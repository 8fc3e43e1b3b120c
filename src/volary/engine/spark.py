"""Spark: a task of a barrier stage for each process, in a cluster, a running program's, or one that is started here."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from volary.engine._base import Handle, Launch, require_restarts
from volary.engine.launchers.commands import answer_of, last_line
from volary.engine.launchers.launched import Launched, variables_for
from volary.engine.local import LOOPBACK, LocalEngine
from volary.errors import SettingError
from volary.executors.stage import CONNECT, StageSettings, lacks, scratch
from volary.run.machine.addresses import address_for_others, address_towards

EXECUTORS = [sys.executable, "-m", "volary.executors"]
_ANSWER_S = 120.0  # of an application: a session of Spark takes some seconds, and so does its first job
_LOCAL = re.compile(r"local\[(\d+|\*)(?:,\d+)?\]|local-cluster\[(\d+),(\d+),\d+\]")
_ELSEWHERE = re.compile(r"(?:spark|sc|k8s)://\S+|yarn")
ACCEPTED = "spark://host:7077, yarn, k8s://..., local[4], local-cluster[2,1,1024], sc://host:15002"


@dataclass(frozen=True, kw_only=True)
class SparkEngine:
    """Workers are below tasks of a barrier stage. Servers are on the driver's machine, without Spark."""

    master: str = ""  # as Spark names it, or of a Connect server; empty: as spark-defaults.conf says, else this machine
    pin: bool = True  # each worker stays on its own share of the cores of its machine
    max_restarts: int = 0  # times that the run is resumed by itself after the loss of a process

    def __post_init__(self) -> None:
        require_restarts(self.max_restarts)
        if self.master and not (_LOCAL.fullmatch(self.master) or _ELSEWHERE.fullmatch(self.master)):
            raise SettingError(f"master is {self.master!r}; accepted: {ACCEPTED}")

    def check(self, workers: int) -> str | None:
        """Spark and Java must be here, and the cluster large enough, as far as that is known without a stage."""
        if find_spec("pyspark") is None:
            return "Spark is not installed here: pip install 'volary[spark]'"
        stage = self._stage(workers)
        if stage.attaches or stage.master.startswith(CONNECT):
            return self._answered(workers)
        if not _java():
            return "Spark needs Java 17, and there is none: set JAVA_HOME, or install it (openjdk-17-jre-headless)"
        if (slots := _slots(stage.master)) is not None and slots < workers:
            return lacks({"dynamic": False, "slots": slots}, workers)
        return LocalEngine().check(workers) if stage.is_here else None

    def warnings(self, workers: int) -> list[str]:
        """Warnings about this machine; Spark judges what others have."""
        return LocalEngine().warnings(workers) if self._stage(workers).is_here else []

    def host(self) -> str:
        """This machine's address on the route to the cluster; loopback where all of Spark is on this machine."""
        master = self._stage(1).master
        if master.startswith("local"):
            return LOOPBACK
        host, _, port = master.partition("://")[2].partition(",")[0].partition(";")[0].rpartition(":")
        return address_towards(host.strip("[]/")) if port.strip("/").isdecimal() else address_for_others()

    def command(self, launch: Launch) -> list[str]:
        """The command of the process that is Spark's driver, for all of them."""
        log = str(launch.directory.logs / f"spark-{launch.role}s.log")
        return [*EXECUTORS, self._stage(launch.count, log).words(), *launch.command]

    def prepare(self, workers: int) -> None:
        """Do nothing: Spark starts them."""

    def launch(self, launch: Launch) -> Handle:
        """Start them by one barrier stage."""
        if launch.role == "server":
            return LocalEngine().launch(launch)
        variables = variables_for(launch, pin=self.pin)
        return Launched("spark", launch, self.command(launch), variables, leaves=lambda pid: [scratch(pid)])

    def _stage(self, workers: int, log: str = "") -> StageSettings:
        return StageSettings(count=workers, master=self.master or _configured() or f"local[{workers}]", log=log)

    def _answered(self, workers: int) -> str | None:
        """Why an application that runs cannot hold so many."""
        stage = self._stage(0)
        answer = answer_of([*EXECUTORS, stage.words()], _ANSWER_S)
        if answer.returncode:
            return f"Spark does not answer at {stage.master}: {last_line(answer)}"
        return lacks(json.loads(answer.stdout.splitlines()[-1]), workers)


def _configured() -> str:
    """The master that Spark's own configuration names; empty if it names none."""
    home = os.environ.get("SPARK_HOME", "")
    folder = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else "")
    file = Path(folder, "spark-defaults.conf")
    if not folder or not file.is_file():
        return ""
    named = re.search(r"^\s*spark\.master(?:\s*=\s*|\s+)(\S+)", file.read_text(errors="replace"), re.MULTILINE)
    return named[1] if named else ""


def _slots(master: str) -> int | None:
    """The tasks that can run at once, if the master's name says so."""
    named = _LOCAL.fullmatch(master)
    if named is None or named[1] == "*":
        return None
    return int(named[1]) if named[1] else int(named[2]) * int(named[3])


def _java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return Path(home, "bin", "java").is_file() if home else shutil.which("java") is not None


ENGINE = SparkEngine
