"""The runs of a sweep, which a queue starts, the engine's or else this machine's, and which outlive the sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from volary.driver.interrupts import Interrupts
from volary.driver.queued import ask_to_end, is_over, queue_of
from volary.driver.resume import submit_again
from volary.driver.tasks.checks import check
from volary.driver.tasks.rungs import ETA, rungs
from volary.driver.tasks.submitting import submit_task
from volary.driver.tasks.task import stem
from volary.errors import BadInput, RunError, Stopped, VolaryError
from volary.jobs.asked import QueueRequest
from volary.jobs.queue import LocalQueue
from volary.monitor.tables.sweep import Combination, combinations, combined
from volary.monitor.watching import ending
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.run.launch.launched import is_stopped_by_user
from volary.run.machine.cores import cores_here, share_of
from volary.run.owner import refuse_foreign
from volary.run.sweep import Rung, Sweep
from volary.session.grid import Grid
from volary.session.spec import Session
from volary.session.values.period import NEVER, Period

LOOK_S = 0.2
CLUSTER_LOOK_S = 2.0  # a controller has many to answer
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


@dataclass
class _Underway:
    member: str
    run: RunDirectory


class SweepRunner:
    """Carries a sweep out, at most `at_once` runs at a time, each on its share of the cores; None: the queue has all.

    If it stops early: up to a rung, where the best are chosen and resumed, exactly, up to the next one. What is
    finished stays, what was stopped or lost is resumed, and what has failed stays so until it is removed. notify:
    called with a line for each thing that happens.
    """

    def __init__(
        self, sweep: Sweep, at_once: int | None, notify: Callable[[str], None], *, trust: bool = False
    ) -> None:
        self._sweep, self._at_once, self._notify, self._trust = sweep, at_once, notify, trust
        session = Session.read(sweep.session)
        self._on_cluster, self._checkpoints = queue_of(session.engine) is not None, session.checkpoint.path
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
        whole = [one for one in ranked if len(one.best) == len(one.states) and self._have_got_there(one)]
        kept = {member for one in whole[: max(1, len(ranked) // ETA)] for member in one.states}
        return [member for member in self._left if member in kept]

    def _have_got_there(self, one: Combination) -> bool:
        return all(state != FAILED and self._is_over(member) for member, state in one.states.items())

    def _train(self, until: Period, interrupts: Interrupts) -> None:
        """Train what is left until then. Raises Stopped as `run`."""
        self._until = until
        waiting = [member for member in self._left if not self._is_over(member)]
        self._begun, asked = len(self._left) - len(waiting), 0
        while self._underway or (waiting and not interrupts.count):
            while waiting and len(self._underway) < (self._at_once or len(self._left)) and not interrupts.count:
                self._start(waiting.pop(0))
            interrupts.wait(CLUSTER_LOOK_S if self._on_cluster else LOOK_S)
            if interrupts.count > asked:
                asked = interrupts.count
                self._interrupt(asked)
            self._collect()
        if interrupts.count and not all(self._is_over(member) for member in self._left):
            raise Stopped("the sweep was stopped")

    def _is_over(self, member: str) -> bool:
        """Whether there is nothing to do for the run until `_until`: it is so far, or has failed."""
        run = self._sweep.run(member)
        if run is None:
            return False
        with RunReader(run) as reader:
            state, info = reader.state(), reader.info()
        if state == "running" and not self._is_queued(run):
            raise RunError(f"{run.path} is running; wait for it (volary watch), or end it: volary stop {run.argument}")
        if state != "stopped" or self._until == NEVER:
            return state in ("finished", FAILED)
        enough = self._until.in_steps(int(info.get("steps_per_epoch") or 1)) or 0
        if int(info.get("steps_done") or 0) >= enough:
            return True
        return Session.read(run.session).train.stop_at == self._until and not is_stopped_by_user(run)

    def _start(self, member: str) -> None:
        """Queue a run, unless it is queued already, as the sweep was killed."""
        run = self._sweep.run(member)
        until = [f"train.stop_at={self._until}"] if self._sweep.rungs() else []
        self._begun += 1
        try:
            if run is None:
                task = self._session(member, until)
                how, run = "queued", submit_task(task, self._asked(task))
            elif self._is_queued(run):
                how = "is queued"
            else:
                submit_again(run, self._asked(Session.read(run.session, until)), until)
                how = "queued to be resumed"
        except VolaryError as error:
            self._sweep.log(member).write_text(f"{error}\n")
            self._notify(f"{member}: {_first_line(str(error))}")
        else:
            self._underway.append(_Underway(member, run))
            self._notify(f"{self._begun}/{len(self._left)} {member} {how}")

    def _session(self, member: str, until: Sequence[str]) -> Session:
        where = [f"run.folder={_quoted(str(self._sweep.folder))}", f"run.name={_quoted(member)}"]
        if self._checkpoints is not None:
            where.append(f"checkpoint.path={_quoted(f'{self._checkpoints}/{self._sweep.folder.name}')}")
        return Session.read(self._sweep.session, [*_overrides(self._sweep.members[member]), *where, *until])

    def _asked(self, session: Session) -> QueueRequest:
        """A core for each of its workers; where only so many may run at a time, an even share of all."""
        if self._at_once is None or self._on_cluster:
            return QueueRequest()
        here = cores_here()
        share = max(len(share_of(here, place, self._at_once)) for place in range(self._at_once))
        return QueueRequest(cores=max(share, min(session.strategy.workers, len(here))))

    def _is_queued(self, run: RunDirectory) -> bool:
        return str(run.path) in LocalQueue().runs()

    def _interrupt(self, times: int) -> None:
        self._notify("stopping: each run finishes its step and saves; Ctrl-C again stops now")
        for one in self._underway:
            ask_to_end(one.run, times)

    def _collect(self) -> None:
        queued = LocalQueue().runs()
        for one in [one for one in self._underway if str(one.run.path) not in queued and is_over(one.run)]:
            self._underway.remove(one)
            found = ending(one.run)
            if found.state == "stopped" and self._is_over(one.member):
                self._notify(f"{one.member} has done {self._until}")
            elif found.state == "finished":
                self._notify(f"{one.member} finished")
            else:
                self._notify(f"{one.member}: {_first_line(found.message) or f'it is {found.state}'}")


def _first_line(text: str) -> str:
    return next(iter(text.splitlines()), "")


def _overrides(values: Mapping[str, str]) -> list[str]:
    return [f"{setting}={value}" for setting, value in values.items()]


def _quoted(text: str) -> str:
    """Quote as YAML text, which a name like 1e3 is not by itself."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
