"""`volary train` inside a lab: every host runs workers of one run, which meet as under any launcher."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from volary.driver.ending import Ending
from volary.driver.servers.settings import is_elastic
from volary.driver.tasks.checks import check
from volary.driver.watching.judge import TAIL_LINES, indented, noted, tail
from volary.errors import BadInput, NotFinite, NotSaved, RanksDiffer, Stopped, VolaryError, WorkerFailed, WorkerLost
from volary.lab.board import meeting
from volary.lab.cluster import Lab
from volary.lab.errors import TIME_IS_OVER, LabError, TimeIsOver
from volary.lab.ranks import RanksEnded
from volary.lab.timeline import LinkChange, Timeline
from volary.run.control.watcher import Watcher
from volary.run.database.reader import RunReader, attempt_in
from volary.run.directory import RunDirectory
from volary.run.launch.file_board import FileBoard
from volary.run.owner import refuse_foreign
from volary.run.verdict import read_verdict
from volary.session.spec import Session
from volary.train.member.meeting import ENTRY, RUN

GRACE_S = 30.0  # to finish a step and write a checkpoint
LINGER_S = 15.0  # after one rank failed: until the run's own watch has told the others
CLOSE_S = 12.0  # for the run's driver to write its last words
_CAUSES = {kind.exit_code: kind for kind in (BadInput, RanksDiffer, NotFinite, NotSaved, WorkerFailed)}


@dataclass(frozen=True)
class LabTraining:
    """The training of a lab: a session file with changed settings, or a run to resume (then both are left empty).

    trust: the file, or the run, may be another user's.
    """

    session: Path | None = None
    overrides: Sequence[str] = ()
    run: RunDirectory | None = None
    trust: bool = False

    def read(self, workers: int) -> Session:
        """The session that will run. Raises BadInput, also for a run of another number of workers."""
        if self.run is None:
            assert self.session is not None
            refuse_foreign(self.session, trust=self.trust)
            return Session.read(self.session, [*self.overrides, f"strategy.workers={workers}"])
        refuse_foreign(self.run.path, self.run.session, trust=self.trust)
        found = Session.read(self.run.session)
        if found.strategy.workers != workers:
            raise BadInput(
                f"{self.run.path} is a run of {found.strategy.workers} workers, and this lab has {workers} ranks"
            )
        return found

    @property
    def command(self) -> list[str]:
        """The command line of each rank."""
        file = self.session if self.run is None else self.run.session
        return [sys.executable, "-m", "volary.worker", *(["--trust"] if self.trust else []), str(file), *self.overrides]


def train(
    lab: Lab,
    training: LabTraining,
    watcher: Watcher,
    *,
    procs: int = 1,
    at: Sequence[LinkChange | str] = (),
    timeout_s: float | None = None,
    pin: bool | None = None,
    say: Callable[[str], None] | None = None,
) -> Ending:
    """Train in an open lab, with `procs` workers a host, whatever the session's `strategy.workers` says.

    pin: None: as the session's engine has it. The other arguments are as in `Lab.run`. Raises what `volary train` does
    (BadInput before anything starts), and TimeIsOver.
    """
    workers = lab.topology.hosts * procs
    session = training.read(workers)
    check(session)
    timeline = Timeline(at, lab.topology)
    with ExitStack() as open_:
        place = open_.enter_context(meeting())
        outputs = [open_.enter_context(tempfile.TemporaryFile()) for _ in range(workers)]
        if training.run is not None:
            place.board.set(RUN, str(training.run.path))
        view = _View(place.board, watcher)
        ended = interrupted = None
        try:
            with lab.launch(
                training.command,
                procs=procs,
                env=place.environment,
                outputs=outputs,
                keep=[place.descriptor],
                pin=getattr(session.engine, "pin", False) if pin is None else pin,
                grace_s=GRACE_S,
                linger_s=None if is_elastic(session.strategy) else LINGER_S,
            ) as ranks:
                try:
                    ended = ranks.follow(lab, timeline, timeout_s, view.look, say)
                except KeyboardInterrupt as error:
                    interrupted = error
                if (interrupted or (ended and ended.status == TIME_IS_OVER)) and view.ask_to_end(lab):
                    ranks.part(view.look, GRACE_S)
        except KeyboardInterrupt as error:
            interrupted = error
        finally:
            view.close()
        if view.directory is None:
            raise interrupted or _early_error(ended, outputs)
        return _ending(view.directory, ended, lambda: _first_words(lab, view.directory, ended, outputs))


class _View:
    """Hands the run to the watcher once it is there. directory: the run's, None before."""

    def __init__(self, board: FileBoard, watcher: Watcher) -> None:
        self.directory: RunDirectory | None = None
        self._board, self._watcher = board, watcher

    def look(self) -> bool:
        """Show what is new. Whether the run is over, by what its driver does."""
        if self.directory is not None:
            self._watcher.look()
        elif self._board.check([ENTRY, RUN]):
            self.directory = RunDirectory(self._board.get(RUN).decode())
            self._watcher.started(self.directory)
        return self.directory is not None and not self.directory.is_live()

    def ask_to_end(self, lab: Lab) -> bool:
        """Have the run's driver end it in order: it knows whom nobody reaches. False if there is none (any more)."""
        if self.directory is None or not self.directory.is_live():
            return False
        with RunReader(self.directory) as reader:
            driver, *_ = json.loads(reader.info()["pids"])
        try:
            lab.output(0, ["sh", "-c", f"kill -TERM {driver}"])  # rank 0 has started it, on its host
        except LabError:  # it has just gone
            return False
        return True

    def close(self) -> None:
        """Show the end, once the run's driver has written it."""
        self.look()
        if self.directory is None:
            return
        deadline = time.monotonic() + CLOSE_S
        while self.directory.is_live() and time.monotonic() < deadline:
            time.sleep(0.05)
        self._watcher.ended()


def _first_words(
    lab: Lab, directory: RunDirectory | None, ended: RanksEnded | None, outputs: Sequence[IO[bytes]]
) -> str:
    """Say where the rank that failed first was, and what it printed, if its run's driver has left no word."""
    if directory is None or ended is None or ended.rank is None:
        return "the run was cut off"
    outputs[ended.rank].seek(0)
    output = outputs[ended.rank].read().decode(errors="replace")
    lines = (output.splitlines() or tail(directory.log(ended.rank)))[-TAIL_LINES:]
    host = lab.topology.name(ended.rank // (len(ended.statuses) // lab.topology.hosts))
    words = f"rank {ended.rank} (host {host}) ended with status {ended.status}, and its run's driver left no word"
    return "\n".join([words, *indented(lines)])


def _early_error(ended: RanksEnded | None, outputs: Sequence[IO[bytes]]) -> VolaryError:
    """No run was made: what the first rank said that failed, or rank 0."""
    if ended is None or ended.status == TIME_IS_OVER:
        return TimeIsOver("the time was over before the run was made")
    outputs[ended.rank or 0].seek(0)
    output = outputs[ended.rank or 0].read().decode(errors="replace").strip()
    return _CAUSES.get(ended.status, WorkerLost)(output or f"no run was made: {ended}")


def _ending(directory: RunDirectory, ended: RanksEnded | None, first_words: Callable[[], str]) -> Ending:
    """How the run ended by its own account, or else by `first_words`.

    ended: how its ranks did; None if the user ended them.
    """
    with RunReader(directory) as reader:
        info = reader.info()
    state, step, message = info.get("state", ""), int(info.get("steps_done", 0)), info.get("message", "")
    if ended is not None and ended.status == TIME_IS_OVER:
        raise TimeIsOver(f"the time was over\n{message}")
    if state == "finished":
        return Ending(directory, "finished", step, message)
    if state == "stopped":
        return Ending(directory, "stopped", step, message)
    kind = Stopped if ended is None else _cause(directory, len(ended.statuses), attempt_in(info, before=0))
    raise noted(kind(message or first_words()), directory)


def _cause(directory: RunDirectory, workers: int, attempt: int) -> type[VolaryError]:
    """The error of the first worker whose own code failed; none says so where one was lost."""
    left = [read_verdict(directory.verdicts, rank, attempt) for rank in range(workers)]
    own = [verdict for verdict in left if verdict is not None and verdict.outcome in ("failed", "refused")]
    return _CAUSES.get(min(own, key=lambda v: (v.step, v.rank)).exit_code, WorkerFailed) if own else WorkerLost
