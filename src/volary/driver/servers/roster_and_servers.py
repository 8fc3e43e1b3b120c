"""A run with parameter servers, as its driver sees it: hosts the roster, starts the servers, watches them."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from typing import Any, Literal

from volary.comm.control.service import Replies, Service
from volary.driver.server_group import ServerFailure
from volary.driver.servers.checkpoint_drafts import CheckpointDrafts, restored
from volary.driver.servers.settings import are_colocated, is_elastic, launch_of_servers
from volary.driver.tasks.task import Task
from volary.driver.watching.judge import exit_words, indented, tail
from volary.engine._base import Engine, Exited, Handle
from volary.errors import BadInput
from volary.run.best import not_numbers
from volary.run.checkpoints import Checkpoints
from volary.run.control.requests import ChangeRate, Request
from volary.run.database.counts import CountRow
from volary.run.database.journal import Journal
from volary.run.directory import RunDirectory
from volary.run.launch.meeting import Meeting
from volary.run.machine import clock
from volary.run.resuming import is_resumable
from volary.server.roster.replica_ranks import ReplicaRanks
from volary.server.roster.roster import Roster
from volary.server.roster.settings import RosterSettings
from volary.session.script import Script

NOTE_EVERY_S = 0.25
BY_FAILURE_DETECTOR = ("joined", "lost")  # by the watch, which knows more of them


class RosterAndServers:
    """ServerGroup (see `volary.driver.server_group`): the roster and its servers, which `engine` starts."""

    def __init__(
        self, directory: RunDirectory, task: Task, settings: RosterSettings, journal: Journal, engine: Engine
    ) -> None:
        strategy, checkpoints = task.strategy, Checkpoints(directory.checkpoints)
        self.elastic, self.lock_step = is_elastic(strategy), False
        self._directory, self._strategy, self._journal, self._engine = directory, strategy, journal, engine
        self._count = settings.servers
        session = None if isinstance(task, Script) else task
        self._keeping = CheckpointDrafts(checkpoints, task.checkpoint, self._count)
        goes_on = session is not None or is_resumable(directory)  # a loop that saves nothing begins anew
        found = restored(checkpoints, journal) if goes_on else None
        self._roster = Roster(settings, strategy.consistency, self._keeping, self._on_event, found)
        self.each = settings.each
        self._members = self._roster if self.each == 1 else ReplicaRanks(self._roster, self.each)
        self._servers: Handle | None = None  # those beside workers are theirs
        self._exits: dict[int, Exited] = {}
        self._given_up: frozenset[int] = frozenset()  # servers that the run goes on without
        self._noted_pids: list[int] = []
        self._started_at = self._noted_at = 0.0
        self._noted = self._first = self._roster.steps
        self._lr = session.settings().get("optimizer.lr") if session else None

    @property
    def services(self) -> Mapping[str, Service]:
        return {"roster": self._members}

    def start(self, meeting: Meeting) -> None:
        """Start the server processes that do not live beside workers."""
        self._started_at = time.monotonic()
        self._journal.note(steps_now=self._roster.steps)
        if launch := launch_of_servers(self._directory, self._strategy, meeting):
            self._servers = self._engine.launch(launch)

    def expect(self, rank: int) -> None:
        """Let the run continue for a worker that is starting, too."""
        self._roster.expect(rank // self.each)

    def without(self, rank: int, reason: str, now: float) -> Replies:
        """Give the work of a lost worker to others."""
        return self._members.lost(rank, reason, now)

    def left(self, rank: int, now: float) -> Replies:
        """Note that the worker has left: nobody is to come any more for its place."""
        return self._members.left(rank, now)

    def finish(self, now: float) -> Replies:
        """Finish what is begun, and save the run."""
        return self._members.finish(now)

    def ask(self, request: Request, now: float) -> Replies | None:
        """Pass a request to the roster, which carries it out with the next update."""
        if isinstance(request, ChangeRate):
            change = {"setting": "optimizer.lr", "was": self._lr, "now": request.lr}
            self._lr = request.lr
            self._journal.event("changed", None, self._roster.steps, **change)
        return self._members.ask(request, now)

    def look(self) -> None:
        """See whose process has ended, and note how far the run is."""
        if self._servers:
            self._exits |= {gone.rank: gone for gone in self._servers.events()}
            for number in self._given_up:
                self._servers.kill(number)  # or the end of the run would wait for it
        if (pids := list(self._pids.values())) != self._noted_pids:
            self._noted_pids = pids
            self._journal.note(server_pids=json.dumps(pids))
        now, steps = time.monotonic(), self._roster.steps
        if steps != self._noted and now - self._noted_at >= NOTE_EVERY_S:
            if self._noted == self._first:
                self._journal.note(counted_from=clock.now_s(), counted_from_step=steps)
            self._noted, self._noted_at = steps, now
            self._journal.note(steps_now=steps)

    @property
    def failure(self) -> str:
        """Why the run cannot go on; empty while it can."""
        account = self.account()
        return self._roster.failure or (account.lines[0] if account else "")

    @property
    def refusal(self) -> str:
        """The words of a server that has ended with BadInput, before it came."""
        for number, gone in self._exits.items():
            if gone.code == BadInput.exit_code and f"server {number}" in self._roster.awaited:
                return "\n".join(tail(self._directory.server_log(number)))
        return ""

    @property
    def outcome(self) -> Literal["finished", "stopped", "thawed"] | None:
        return self._roster.outcome

    @property
    def corrupt(self) -> str:
        return self._roster.corrupt

    @property
    def unsaved(self) -> str:
        return self._roster.unsaved

    def account(self) -> ServerFailure | None:
        """The failure of a server without which the run cannot continue; None if there is none."""
        if self._roster.lost_server is not None:
            number, reason = self._roster.lost_server
            happened = exit_words(self._exits[number]) if number in self._exits else reason
            return self._failure_of(number, f"{happened}, and nobody else keeps what it kept")
        missing = [number for number in range(self._count) if f"server {number}" in self._roster.awaited]
        for number in missing:
            if number in self._exits:
                return self._failure_of(number, f"{exit_words(self._exits[number])} before it came")
        if missing and self._servers and (gone := self._servers.ended()):
            words = f"{gone.launcher} (process {gone.pid}) {exit_words(gone)} before server {missing[0]} came"
            return ServerFailure([words, *indented(tail(gone.log))], gone.log)
        limit_s = self._strategy.startup_timeout_s
        if missing and time.monotonic() - self._started_at > limit_s:
            return self._failure_of(missing[0], f"did not come within {limit_s:.0f} s")
        return None

    @property
    def ending(self) -> bool:
        """Whether a server has not left yet."""
        return not self._roster.failure and bool(self._servers and self._servers.running() - self._given_up)

    def steps(self, reported: int) -> int:
        """The steps that the roster counts: workers count only what they do themselves."""
        return self._roster.steps

    def begun(self, reported: int) -> bool:
        """A resumed run's roster begins with the steps of its checkpoint."""
        return self._roster.steps > self._first

    def stop(self) -> None:
        if self._servers:
            self._servers.stop(0.0)
        self._keeping.close()
        self._journal.note(steps_now=self._roster.steps)

    @property
    def _pids(self) -> dict[int, int]:
        return self._servers.pids() if self._servers else {}

    def _failure_of(self, number: int, words: str) -> ServerFailure:
        log, pid = self._directory.server_log(number), self._pids.get(number)
        if are_colocated(self._strategy):
            who = f"beside rank {number}"
        else:
            who = f"host {socket.gethostname()}, process {pid}" if pid else "started by the engine's launcher"
        return ServerFailure(
            [f"server {number} ({who}) {words}; last step {self._roster.steps}", *indented(tail(log))], log
        )

    def _on_event(self, kind: str, rank: int | None, data: dict[str, Any]) -> None:
        """Write the roster's event into the journal; of a replica its first worker's, or each's if it left."""
        if kind == "counts":
            rows = ((kind, max(worker, worker * self.each), *more) for kind, worker, *more in data["rows"])
            self._journal.counts([CountRow(*row) for row in rows])
            return
        if kind in BY_FAILURE_DETECTOR:
            return
        step = data.pop("step", None)
        match kind:
            case "server_lost":
                self._given_up |= {data["server"]}
            case "checkpoint":
                data |= {"step": step} | self._keeping.newest
            case "evaluated":
                data = self._evaluated(step, **data)
        first = None if rank is None else rank * self.each
        self._journal.event(kind, first, step, **data)
        for other in range(first + 1, first + self.each) if first is not None and kind == "left" else ():
            self._journal.event(kind, other, step, **data)

    def _evaluated(self, step: int, figures: dict[str, float], metric: str, best: bool) -> dict[str, float]:
        self._journal.metrics(step, figures)
        if warning := not_numbers(figures):
            self._journal.event("warning", None, step, text=warning)
        if best:
            self._journal.note(best=figures[metric], best_step=step)
            self._journal.event("best", None, step, metric=metric, value=figures[metric])
        return figures
