"""The runs of a sweep, one after the other or several at once, each a command of its own that the sweep outlives."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from volary.driver.interrupts import Interrupts
from volary.driver.tasks.checks import check
from volary.driver.tasks.task import stem
from volary.errors import BadInput, RunError, Stopped
from volary.run.database.reader import RunReader
from volary.run.machine.cores import cores_here, on_cores, share_of
from volary.run.owner import refuse_foreign
from volary.run.sweep import Sweep
from volary.session.grid import Grid
from volary.session.spec import Session

LOOK_S = 0.2
VOLARY = [sys.executable, "-m", "volary"]


def plan(file: Path, overrides: Sequence[str], seeds: int, name: str | None, drawn: int | None = None) -> Sweep:
    """A new sweep of the session in `file`. Raises BadInput, before anything is made, if any of its runs could not be.

    overrides: `a.b=1,2` varies a setting, `a.b=1` is for all. seeds: runs of each combination. name: of the folder.
    drawn: how many combinations are drawn, of ranges as `a.b=1..2`, too; None: all are trained.
    """
    grid = Grid.read(overrides)
    session = Session.read(file, grid.fixed)
    members = grid.members(session, seeds, drawn)
    for values in members.values():
        try:
            check(Session.read(file, [*grid.fixed, *_overrides(values)]))
        except BadInput as error:
            raise BadInput(f"with {' '.join(_overrides(values))}:\n{error}") from None
    return Sweep.create(Path(session.run.folder), name, stem(session), session.to_yaml(), members)


def fitting(sweep: Sweep) -> int:
    """How many of the runs fit on this machine at once: a core for each worker; on CUDA devices, one."""
    session = Session.read(sweep.session)
    if session.train.device == "cuda" or (session.train.device == "auto" and Path("/dev/nvidia0").exists()):
        return 1
    most = max(Session.read(sweep.session, _overrides(values)).strategy.workers for values in sweep.members.values())
    return max(1, len(cores_here()) // most)


@dataclass
class _Underway:
    member: str
    process: subprocess.Popen[bytes]
    place: int
    logged: int  # bytes of the log before it


class SweepRunner:
    """Carries a sweep out, `at_once` runs at a time, each on its share of the cores.

    What is finished stays, what was stopped or lost is resumed, and what has failed stays so until it is removed.
    notify: called with a line for each thing that happens.
    """

    def __init__(self, sweep: Sweep, at_once: int, notify: Callable[[str], None], *, trust: bool = False) -> None:
        self._sweep, self._at_once, self._notify, self._trust = sweep, at_once, notify, trust
        self._underway: list[_Underway] = []
        self._begun = 0

    def run(self) -> None:
        """Train all runs to the end, also if some fail.

        Raises Stopped, once those under way have ended, if the user asked and some are left.
        """
        refuse_foreign(self._sweep.folder, self._sweep.session, trust=self._trust)
        waiting = [member for member in self._sweep.members if not self._is_over(member)]
        over, asked = len(self._sweep.members) - len(waiting), 0
        self._begun = over
        try:
            with Interrupts() as interrupts:
                while self._underway or (waiting and not interrupts.count):
                    while waiting and len(self._underway) < self._at_once and not interrupts.count:
                        self._start(waiting.pop(0))
                    interrupts.wait(LOOK_S)
                    if interrupts.count > asked:
                        asked = interrupts.count
                        self._interrupt()
                    self._collect()
        finally:
            for one in self._underway:
                one.process.kill()
                one.process.wait()
        if asked and not all(self._is_over(member) for member in self._sweep.members):
            raise Stopped("the sweep was stopped")

    def _is_over(self, member: str) -> bool:
        run = self._sweep.run(member)
        if run is None:
            return False
        with RunReader(run) as reader:
            state = reader.state()
        if state == "running":
            raise RunError(f"{run.path} is running; wait for it (volary watch), or end it: volary stop {run.argument}")
        return state in ("finished", "failed")

    def _start(self, member: str) -> None:
        run, log = self._sweep.run(member), self._sweep.log(member)
        if run is not None:
            command = [*VOLARY, "resume", str(run.path)]
        else:
            where = [f"run.folder={_quoted(str(self._sweep.folder))}", f"run.name={_quoted(member)}"]
            if (checkpoints := Session.read(self._sweep.session).checkpoint.path) is not None:
                where.append(f"checkpoint.path={_quoted(str(checkpoints) + '/' + self._sweep.folder.name)}")
            command = [*VOLARY, "train", str(self._sweep.session), *_overrides(self._sweep.members[member]), *where]
        place = next(n for n in range(self._at_once) if n not in {one.place for one in self._underway})
        self._begun += 1
        self._notify(f"{self._begun}/{len(self._sweep.members)} {member} {'resumed' if run else 'started'}")
        logged = log.stat().st_size if log.exists() else 0
        # runs beside each other must not pin workers to the same cores
        with log.open("ab") as out, on_cores(share_of(cores_here(), place, self._at_once)):
            # a session of its own: Ctrl-C in the terminal reaches it through the sweep alone, and counts once
            process = subprocess.Popen(
                [*command, "--quiet", *(["--trust"] if self._trust else [])],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._underway.append(_Underway(member, process, place, logged))

    def _interrupt(self) -> None:
        self._notify("stopping: each run finishes its step and saves; Ctrl-C again stops now")
        for one in self._underway:
            one.process.send_signal(signal.SIGINT)

    def _collect(self) -> None:
        for one in [one for one in self._underway if one.process.poll() is not None]:
            self._underway.remove(one)
            self._notify(self._failure_of(one) if one.process.returncode else f"{one.member} finished")

    def _failure_of(self, one: _Underway) -> str:
        """Say why a run did not finish: the first line that its command printed."""
        said = self._sweep.log(one.member).read_bytes()[one.logged :].decode(errors="replace").splitlines()
        return f"{one.member}: {next(iter(said), 'it left no word')}"


def _overrides(values: Mapping[str, str]) -> list[str]:
    return [f"{setting}={value}" for setting, value in values.items()]


def _quoted(text: str) -> str:
    """Quote as YAML text, which a name like 1e3 is not by itself."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
