"""A run with parameter servers, as its driver sees it: hosts the roster, starts the servers, watches them."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any, Literal

from volary.comm.service import Replies, Service
from volary.driver.judge import exit_words, indented, tail
from volary.driver.keepers import Account
from volary.driver.keeping import Keeping, restored
from volary.engine._base import Exited
from volary.engine._processes import Processes
from volary.engine.local import cores_here
from volary.errors import BadInput
from volary.run.best import not_numbers
from volary.run.checkpoints import Checkpoints
from volary.run.directory import RunDirectory
from volary.run.disk import Disk
from volary.run.journal import Journal
from volary.run.meeting import Meeting, announce
from volary.run.tallies import Tally
from volary.server.roster import Roster, Terms
from volary.session.spec import Session, Strategy

SERVER = [sys.executable, "-m", "volary.serving"]
NOTE_EVERY_S = 0.25
TOLD_ELSEWHERE = ("joined", "lost")  # by the watch, which knows more of them


class Served:
    """Keepers (see `volary.driver.keepers`): the roster and its servers. host: where they listen."""

    def __init__(self, directory: RunDirectory, session: Session, journal: Journal, host: str) -> None:
        strategy, checkpoints = session.strategy, Checkpoints(directory.checkpoints)
        self.elastic = is_elastic(strategy)
        self._directory, self._strategy, self._journal, self._host = directory, strategy, journal, host
        self._count = strategy.exchange.count(strategy.workers)
        self._keeping = Keeping(checkpoints, session.checkpoint, self._count)
        found = restored(checkpoints, journal)
        if found is not None and strategy.codec.feedback:
            journal.event(
                "warning", text="what the codec left out of gradients so far is lost: workers begin without it"
            )
        self._roster = Roster(terms_of(session), strategy.consistency, self._keeping, self._said, found)
        self._processes = Processes()
        self._exits: dict[int, Exited] = {}
        self._reasons: dict[int, str] = {}  # by server, why the roster takes it for lost
        self._started_at = self._noted_at = 0.0
        self._noted = self._first = self._roster.steps

    @property
    def services(self) -> Mapping[str, Service]:
        """The roster."""
        return {"roster": self._roster}

    def start(self, meeting: Meeting) -> None:
        """Start the server processes that do not live beside workers, and let joiners find the run."""
        self._started_at = time.monotonic()
        self._journal.note(steps_now=self._roster.steps)
        if self.elastic:
            announce(self._directory, meeting)
        if not self._colocated:
            for number in range(self._count):
                place = self._place(meeting, number)
                self._processes.start(number, SERVER, place, self._directory.server_log(number))
            self._journal.note(server_pids=json.dumps(list(self._processes.pids().values())))

    def expect(self, rank: int) -> None:
        """The run goes on for a worker that is starting, too."""
        self._roster.expect(rank)

    def without(self, rank: int, reason: str, now: float) -> Replies:
        """What a lost worker had to do goes to others."""
        return self._roster.lost(rank, reason, now)

    def left(self, rank: int, now: float) -> Replies:
        """Nobody is to come any more for a place that was given."""
        return self._roster.left(rank, now)

    def finish(self, now: float) -> Replies:
        """What is begun is finished, and saved."""
        return self._roster.finish(now)

    def look(self) -> None:
        """See whose process has ended, and note how far the run is."""
        self._exits |= {gone.rank: gone for gone in self._processes.events()}
        now, steps = time.monotonic(), self._roster.steps
        if steps != self._noted and now - self._noted_at >= NOTE_EVERY_S:
            if self._noted == self._first:
                self._journal.note(counted_from=time.time(), counted_from_step=steps)
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
    def outcome(self) -> Literal["finished", "stopped"] | None:
        """By the roster."""
        return self._roster.outcome

    @property
    def corrupt(self) -> str:
        """By the roster."""
        return self._roster.corrupt

    @property
    def unsaved(self) -> str:
        """By the roster."""
        return self._roster.unsaved

    def account(self) -> Account | None:
        """What to tell of the server for which the run cannot go on; None if there is none."""
        number = self._roster.lost_server
        if number is not None:
            return self._told(number, f"{self._what_happened(number)}, and nobody else keeps what it kept")
        missing = [number for number in range(self._count) if f"server {number}" in self._roster.awaited]
        for number in missing:
            if number in self._exits:
                return self._told(number, f"{exit_words(self._exits[number])} before it came")
        limit_s = self._strategy.startup_timeout_s
        if missing and time.monotonic() - self._started_at > limit_s:
            return self._told(missing[0], f"did not come within {limit_s:.0f} s")
        return None

    @property
    def ending(self) -> bool:
        """Whether a server has not left yet."""
        return not self._roster.failure and len(self._exits) < len(self._processes.pids())

    def steps(self, told: int) -> int:
        """By the roster: workers count only what they do themselves."""
        return self._roster.steps

    def stop(self) -> None:
        """End the processes."""
        self._processes.stop(0.0)
        self._journal.note(steps_now=self._roster.steps)
        Disk().remove(self._directory.meeting)

    @property
    def _colocated(self) -> bool:
        return isinstance(self._strategy.exchange.servers, str)

    def _place(self, meeting: Meeting, number: int) -> dict[str, object]:
        return {
            "VOLARY_SERVER": number,
            "VOLARY_ADDRESS": self._host,
            "VOLARY_LIFE": meeting.life,
            "VOLARY_MEET": meeting.address,
            "VOLARY_SERVER_LIFE": meeting.server_life,
            "VOLARY_RUN": self._directory.path,
            "OMP_NUM_THREADS": max(1, len(cores_here()) // (self._count + self._strategy.workers)),
        }

    def _what_happened(self, number: int) -> str:
        if number in self._exits:
            return exit_words(self._exits[number])
        return self._reasons.get(number, "has gone")

    def _told(self, number: int, words: str) -> Account:
        log, pid = self._directory.server_log(number), self._processes.pids().get(number)
        who = f"beside rank {number}" if pid is None else f"host {socket.gethostname()}, process {pid}"
        return Account([f"server {number} ({who}) {words}; last step {self._roster.steps}", *indented(tail(log))], log)

    def _said(self, kind: str, rank: int | None, data: dict[str, Any]) -> None:
        """What the roster tells, into the journal."""
        if kind == "tallies":
            self._journal.tally([Tally(*row) for row in data["rows"]])
            return
        if kind in TOLD_ELSEWHERE:
            return
        step = data.pop("step", None)
        match kind:
            case "server_lost":
                self._reasons[data["server"]] = data["reason"]
            case "checkpoint":
                data |= {"step": step} | self._keeping.newest
            case "evaluated":
                data = self._evaluated(step, **data)
        self._journal.event(kind, rank, step, **data)

    def _evaluated(self, step: int, figures: dict[str, float], metric: str, best: bool) -> dict[str, float]:
        self._journal.metrics(step, figures)
        if warning := not_numbers(figures):
            self._journal.event("warning", None, step, text=warning)
        if best:
            self._journal.note(best=figures[metric], best_step=step)
            self._journal.event("best", None, step, metric=metric, value=figures[metric])
        return figures


def is_elastic(strategy: Strategy) -> bool:
    """Whether workers may come and go in a run of this strategy."""
    return bool(strategy.exchange.served and strategy.consistency.elastic)


def terms_of(session: Session) -> Terms:
    """What the roster has to know of a session."""
    strategy, train = session.strategy, session.train
    return Terms(
        workers=strategy.workers,
        servers=strategy.exchange.count(strategy.workers),
        replicas=strategy.exchange.replicas,
        batch_size=session.data.batch_size,
        steps=lambda per_epoch: train.steps or max(1, round((train.epochs or 0) * per_epoch)),
        evaluate_every=session.evaluate.every.in_steps,
        checkpoint_every=session.checkpoint.every.in_steps,
        patience=session.evaluate.patience,
        skip_corrupt=session.data.skip_corrupt,
        keep_best=session.checkpoint.keep_best,
    )
