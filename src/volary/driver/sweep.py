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
from volary.driver.tasks.rungs import ETA, rungs
from volary.driver.tasks.task import stem
from volary.errors import BadInput, RunError, Stopped
from volary.monitor.tables.sweep import Combination, combinations, combined
from volary.run.database.reader import RunReader
from volary.run.launch.launched import is_stopped_by_user
from volary.run.machine.cores import cores_here, on_cores, share_of
from volary.run.owner import refuse_foreign
from volary.run.sweep import Rung, Sweep
from volary.session.grid import Grid
from volary.session.spec import NEVER, Session
from volary.session.values.period import Period

LOOK_S = 0.2
VOLARY = [sys.executable, "-m", "volary"]
FAILED = "failed"


def plan(
    file: Path,
    overrides: Sequence[str],
    seeds: int,
    name: str | None,
    drawn: int | None = None,
    *,
    stops_early: bool = False,
) -> Sweep:
    """A new sweep of the session in `file`. Raises BadInput, before anything is made, if any of its runs could not be.

    overrides: `a.b=1,2` varies a setting, `a.b=1` is for all. seeds: runs of each combination. name: of the folder.
    drawn: how many combinations are drawn, of ranges as `a.b=1..2`, too; None: all are trained. stops_early: all are
    trained for some time, and ever fewer of them, the best, from there on.
    """
    grid = Grid.read(overrides)
    session = Session.read(file, grid.fixed)
    members = grid.members(session, seeds, drawn)
    sessions = []
    for values in members.values():
        try:
            sessions.append(Session.read(file, [*grid.fixed, *_overrides(values)]))
            check(sessions[-1])
        except BadInput as error:
            raise BadInput(f"with {' '.join(_overrides(values))}:\n{error}") from None
    halving = rungs(sessions, len(combined(members))) if stops_early else ()
    places = [Rung(str(at)) for at in halving]
    return Sweep.create(Path(session.run.folder), name, stem(session), session.to_yaml(), members, places)


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

    If it stops early: up to a rung, where the best are chosen and resumed, exactly, up to the next one. What is
    finished stays, what was stopped or lost is resumed, and what has failed stays so until it is removed. notify:
    called with a line for each thing that happens.
    """

    def __init__(self, sweep: Sweep, at_once: int, notify: Callable[[str], None], *, trust: bool = False) -> None:
        self._sweep, self._at_once, self._notify, self._trust = sweep, at_once, notify, trust
        self._underway: list[_Underway] = []
        self._begun, self._until, self._left = 0, NEVER, list(sweep.members)

    def run(self) -> None:
        """Train all runs to the end, or to where they are stopped early, also if some fail.

        Raises Stopped, once those under way have ended, if the user asked and some are left.
        """
        refuse_foreign(self._sweep.folder, self._sweep.session, trust=self._trust)
        found = self._sweep.rungs()
        with Interrupts() as interrupts:
            for number, rung in enumerate(found):
                if rung.kept is None:
                    self._train(Period.parse(rung.at), interrupts)
                    found[number] = rung = Rung(rung.at, self._best())
                    self._sweep.write_rungs(found)
                    self._notify(f"{len(rung.kept or ())} of {len(self._left)} runs go on from {rung.at}")
                self._left = rung.kept or []
            self._train(NEVER, interrupts)

    def _best(self) -> list[str]:
        """The runs of one in `ETA` combinations of those that are left, the best whose runs have all come so far."""
        left = set(self._left)
        ranked = [one for one in combinations(self._sweep) if left.issuperset(one.states)]
        whole = [one for one in ranked if len(one.best) == len(one.states) and self._have_come_so_far(one)]
        kept = {member for one in whole[: max(1, len(ranked) // ETA)] for member in one.states}
        return [member for member in self._left if member in kept]

    def _have_come_so_far(self, one: Combination) -> bool:
        return all(state != FAILED and self._is_over(member) for member, state in one.states.items())

    def _train(self, until: Period, interrupts: Interrupts) -> None:
        """Train what is left until then. Raises Stopped as `run`."""
        self._until = until
        waiting = [member for member in self._left if not self._is_over(member)]
        self._begun, asked = len(self._left) - len(waiting), 0
        try:
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
        if interrupts.count and not all(self._is_over(member) for member in self._left):
            raise Stopped("the sweep was stopped")

    def _is_over(self, member: str) -> bool:
        """Whether there is nothing to do for the run until `_until`: it is so far, or has failed."""
        run = self._sweep.run(member)
        if run is None:
            return False
        with RunReader(run) as reader:
            state, info = reader.state(), reader.info()
        if state == "running":
            raise RunError(f"{run.path} is running; wait for it (volary watch), or end it: volary stop {run.argument}")
        if state != "stopped" or self._until == NEVER:
            return state in ("finished", FAILED)
        enough = self._until.in_steps(int(info.get("steps_per_epoch") or 1)) or 0
        if int(info.get("steps_done") or 0) >= enough:
            return True
        return Session.read(run.session).train.stop_at == self._until and not is_stopped_by_user(run)

    def _start(self, member: str) -> None:
        run, log = self._sweep.run(member), self._sweep.log(member)
        until = [f"train.stop_at={self._until}"] if self._sweep.rungs() else []
        if run is not None:
            command = [*VOLARY, "resume", str(run.path), *until]
        else:
            where = [f"run.folder={_quoted(str(self._sweep.folder))}", f"run.name={_quoted(member)}"]
            if (checkpoints := Session.read(self._sweep.session).checkpoint.path) is not None:
                where.append(f"checkpoint.path={_quoted(str(checkpoints) + '/' + self._sweep.folder.name)}")
            command = [
                *VOLARY,
                "train",
                str(self._sweep.session),
                *_overrides(self._sweep.members[member]),
                *where,
                *until,
            ]
        place = next(n for n in range(self._at_once) if n not in {one.place for one in self._underway})
        self._begun += 1
        self._notify(f"{self._begun}/{len(self._left)} {member} {'resumed' if run else 'started'}")
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
            if one.process.returncode == Stopped.exit_code and self._is_over(one.member):
                self._notify(f"{one.member} has done {self._until}")
            else:
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
