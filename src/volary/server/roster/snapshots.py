"""Kept states from their beginning to their end: measured piece by piece, then a checkpoint, if they are to be."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from volary.comm.control.errors import BadMessage
from volary.run.best import Best
from volary.run.disk import TRY_AGAIN_AFTER_S
from volary.server.membership.outgoing import Outgoing
from volary.server.membership.replicas import Replicas
from volary.server.protocol.from_members import Evaluated, Figures, Saved
from volary.server.protocol.to_members import EvaluatePiece, Figure, Keep, Release, Save, SaveEnded
from volary.server.roster.snapshot import Measuring, Saving, Snapshot, cut_evenly


class CheckpointStore(Protocol):
    """The place where a served run's checkpoints are drafted and made visible, in the background.

    A future is done once that is, with the OSError for which it could not be.
    """

    def begin(self, step: int) -> Future[None]:
        """Make an empty draft, which servers write their files to."""
        ...

    def give_up(self, step: int) -> None:
        """Give up the draft: nobody writes to it any more."""
        ...

    def commit(self, step: int, files: dict[str, str], state: dict[str, Any], metric: float | None) -> Future[None]:
        """Make it a checkpoint. files: checksum by name. state: of the roster, for `restored`. metric: if the best."""
        ...


@dataclass(frozen=True)
class Measure:
    """The samples that are evaluated, in pieces. metric: decides what is best. keep_best: the best is saved."""

    validation: int
    pieces: int
    metric: str
    higher_is_better: bool
    keep_best: bool


class Snapshots:
    """All states that are kept now. best: of all evaluations so far. unsaved: why the last checkpoint is not there."""

    def __init__(
        self, outgoing: Outgoing, replicas: Replicas, keeping: CheckpointStore, measure: Measure, best: Best
    ) -> None:
        self.best = best
        self._outgoing, self._replicas, self._keeping, self._measure = outgoing, replicas, keeping, measure
        self._open: dict[int, Snapshot] = {}
        self._numbers = 0
        self._to_save: deque[Snapshot] = deque()
        self._saving: Saving | None = None
        self.unsaved = ""
        self._warned_lost = 0  # of the newest evaluation
        self._lost: int | None = None  # the newest update whose state could not be saved
        self._again: Snapshot | None = None  # to be saved again, at some time
        self._again_at: float | None = None

    @property
    def open(self) -> bool:
        """Whether a kept state is still to be measured or saved."""
        return bool(self._open)

    @property
    def measuring(self) -> bool:
        """Whether a state is to be evaluated, or is being evaluated."""
        return any(one.measuring is not None and one.measuring.evaluates for one in self._open.values())

    def learn_of(self, name: int, more: dict[str, Any]) -> None:
        """Let what a kept state's evaluation has changed be in its checkpoint, and in those of all later states."""
        for snapshot in self._open.values():
            if snapshot.name >= name:
                snapshot.state |= more

    def complete(self, number: int, more: dict[str, Any]) -> None:
        """Let what is known of update `number` only once servers apply it be in the checkpoint as of it."""
        for snapshot in self._open.values():
            if snapshot.number == number:
                snapshot.state |= more

    def tick(self, now: float) -> None:
        """See what the store has done, and save again what is to be; `now` in seconds of a monotonic clock."""
        if self._saving is not None and self._saving.at_store is not None:
            self._saving.look(now)
            self.go_on()
        if self._again is None:
            return
        if self._again_at is None:
            self._again_at = now + TRY_AGAIN_AFTER_S[self._again.tries - 1]
        elif now >= self._again_at:
            self._to_save.append(self._again)
            self._again = self._again_at = None
            self.go_on()

    def is_lost(self, number: int) -> bool:
        """Whether the state as of update `number` was to be saved, and could not be."""
        return self._lost == number

    def last(self, number: int) -> None:
        """Make the state as of update `number` the last one that is saved."""
        for snapshot in self._open.values():
            snapshot.last = snapshot.last or snapshot.number == number

    def begin(
        self,
        number: int,
        step: int,
        state: dict[str, Any],
        clocks: Mapping[int, int] | None = None,
        asking: Sequence[int] = (),
        *,
        evaluate: bool = False,
        write: bool = False,
        save: bool = False,
    ) -> None:
        """Keep the state as of update `number`, the newest that was announced. write: a text, as it continues a prompt.

        clocks: by worker, its newest contribution in that, as of which its residuals are kept; None: workers have none.
        asking: workers whose own loops want it saved.
        """
        self._numbers += 1
        measure = self._measure
        pieces = cut_evenly(measure.validation, measure.pieces) if evaluate else []
        owners = [] if clocks is None else self._outgoing.workers
        state |= {"best": self.best.state()}
        snapshot = Snapshot(
            self._numbers, number, step, state, Measuring.of(pieces, writes=write), save, owners, list(asking)
        )
        self._open[snapshot.name] = snapshot
        for worker in owners:  # before servers, once all of which have kept it they are asked to save it
            self._outgoing.to_worker(worker, Keep(snapshot.name, (clocks or {}).get(worker, -1)))
        self._outgoing.to_servers(Keep(snapshot.name, number))

    def kept(self, server: int, snapshot: int) -> None:
        """A server holds it. Raises BadMessage for a snapshot that never was."""
        if not 0 < snapshot <= self._numbers:
            raise BadMessage(f"server {server} has kept snapshot {snapshot}, which nobody asked for")
        if snapshot in self._open:
            self._open[snapshot].kept.add(server)
        self.go_on()

    def task(self, worker: int) -> EvaluatePiece | Figure | None:
        """Something to measure, for a worker that asks."""
        open_ones = list(self._open.values())
        first = next((one for one in open_ones if one.measuring is not None and one.measuring.evaluates), None)
        for snapshot in open_ones:
            if snapshot.measuring is None or not self._is_kept(snapshot):
                continue
            # states are judged one after the other, as what is best by then is in the checkpoint of each
            if snapshot is first and snapshot.measuring.whole and snapshot.measuring.asked is None:
                snapshot.measuring.asked = worker
                return Figure(snapshot.name, snapshot.measuring.summed(), self._measure.validation)
            if piece := snapshot.measuring.give(snapshot.name, snapshot.step, worker):
                return piece
        return None

    def wait_for(self, worker: int) -> bool:
        """Whether the worker has something to measure, or to say of what was."""
        measured = [one.measuring for one in self._open.values() if one.measuring is not None]
        return any(one.asked == worker or worker in one.at.values() for one in measured)

    def evaluated(self, worker: int, report: Evaluated) -> None:
        """A piece is measured. Raises BadMessage if it was not asked for."""
        measuring = self._measured(worker, report.snapshot)
        measuring.take(worker, report)
        if measuring.whole and not measuring.evaluates:
            self._open[report.snapshot].measuring = None
            self.go_on()

    def figures(self, worker: int, report: Figures) -> None:
        """Take an evaluation's figures. Raises BadMessage if it was not asked for."""
        if self._measured(worker, report.snapshot).asked != worker:
            raise BadMessage(
                f"rank {worker} reports the figures of snapshot {report.snapshot}, which it was not asked for"
            )
        snapshot = self._open[report.snapshot]
        if snapshot.measuring is not None:
            self._warn_of_lost(snapshot.step, sum(snapshot.measuring.lost.values()))
        snapshot.measuring = None
        better = self.best.judge(report.value, snapshot.step, higher_is_better=self._measure.higher_is_better)
        if better:
            snapshot.metric = report.value
            snapshot.save = snapshot.save or self._measure.keep_best
        self.learn_of(snapshot.name, {"best": self.best.state()})
        self._outgoing.record(
            "evaluated",
            None,
            {"step": snapshot.step, "figures": report.figures, "metric": self._measure.metric, "best": better},
        )
        self.go_on()

    def _warn_of_lost(self, step: int, lost: int) -> None:
        if lost and lost != self._warned_lost:
            text = f"{lost} of {self._measure.validation} samples of the test part could not be read; figures are of "
            self._outgoing.record(
                "warning", None, {"step": step, "text": f"{text}the others; `volary show` lists them"}
            )
        self._warned_lost = lost

    def left(self, worker: int) -> None:
        """A worker has gone; others measure what it has not."""
        for snapshot in self._open.values():
            if snapshot.measuring is not None:
                snapshot.measuring.left(worker)
            snapshot.owners = [owner for owner in snapshot.owners if owner != worker]
            if worker in snapshot.asking:  # what its loop keeps beside the state is lost with it
                snapshot.asking.remove(worker)
                saving = self._saving
                if saving is not None and saving.snapshot is snapshot:
                    if saving.stage == "drafted" or worker in saving.workers:
                        saving.problem = saving.problem or f"rank {worker} has gone"
                else:
                    snapshot.save = False
                    self._to_save = deque(other for other in self._to_save if other is not snapshot)
        if self._saving is not None:
            self._saving.workers.discard(worker)
        self.go_on()

    def own_saved(self, worker: int, report: Saved) -> None:
        """A worker has written what is its own. Raises BadMessage if it was not asked to."""
        if (saving := self._saving_of(report, f"rank {worker}")) is not None:
            if worker not in saving.workers:
                raise BadMessage(f"rank {worker} has saved snapshot {report.snapshot} twice")
            saving.workers.discard(worker)
            self._take(saving, report, f"rank {worker}")

    def server_gone(self) -> None:
        """A server has gone; its partner writes what it has not."""
        if self._saving is not None:
            here = {server.number for server in self._replicas}
            gone = [number for number in self._saving.waiting if number not in here]
            duties = [duty for number in gone for duty in self._saving.waiting.pop(number)]
            if not self._saving.problem:
                self._ask_for(self._saving, [shard for duty in duties for shard in duty])
        self.go_on()

    def saved(self, server: int, report: Saved) -> None:
        """A server has written its part. Raises BadMessage if it was not asked to."""
        if (saving := self._saving_of(report, f"server {server}")) is not None:
            if server not in saving.waiting:
                raise BadMessage(f"server {server} has saved snapshot {report.snapshot} twice")
            saving.waiting[server].pop(0)
            if not saving.waiting[server]:
                del saving.waiting[server]
            self._take(saving, report, f"server {server}")

    def _saving_of(self, report: Saved, who: str) -> Saving | None:
        """The save that `report` is of; None: it has failed meanwhile. Raises BadMessage if there was none."""
        if self._saving is not None and self._saving.snapshot.name == report.snapshot:
            return self._saving
        if not 0 < report.snapshot <= self._numbers:
            raise BadMessage(f"{who} has saved snapshot {report.snapshot}, which nobody asked for")
        return None

    def _take(self, saving: Saving, report: Saved, who: str) -> None:
        saving.files.update(report.files)
        if report.problem and not saving.problem:
            saving.problem = f"{who}: {report.problem}"
        self.go_on()

    def go_on(self) -> None:
        """Let snapshots that are complete be measured and saved, and release those that nobody needs."""
        while True:
            for snapshot in list(self._open.values()):
                if snapshot.measuring is None and self._is_kept(snapshot) and snapshot not in self._to_save:
                    if not snapshot.save:
                        self._release(snapshot)
                    elif not self._is_being_saved(snapshot) and not self._has_to_wait(snapshot):
                        self._to_save.append(snapshot)
            if self._saving is None and self._to_save:
                self._begin_saving(self._to_save.popleft())
            elif self._saving is not None and self._saving.stage_is_over:
                self._next_stage(self._saving)
            else:
                return

    def _is_being_saved(self, snapshot: Snapshot) -> bool:
        return snapshot is self._again or (self._saving is not None and self._saving.snapshot is snapshot)

    def _has_to_wait(self, snapshot: Snapshot) -> bool:
        """An older state of the same step, whose checkpoint would replace this one's, has to be done with before.

        And whatever is older has to be measured before: a resumed run does not measure it again.
        """
        older = [other for other in self._open.values() if other.name < snapshot.name]
        return any(other.step == snapshot.step or other.measuring is not None for other in older)

    def _is_kept(self, snapshot: Snapshot) -> bool:
        return all(server.number in snapshot.kept for server in self._replicas)

    def _measured(self, worker: int, number: int) -> Measuring:
        snapshot = self._open.get(number)
        if snapshot is None or snapshot.measuring is None:
            raise BadMessage(f"rank {worker} reports on snapshot {number}, which is not being measured")
        return snapshot.measuring

    def _begin_saving(self, snapshot: Snapshot) -> None:
        self._saving = Saving(snapshot, self._keeping.begin(snapshot.step))

    def _next_stage(self, saving: Saving) -> None:
        """The draft is there; or everybody has written, or said why not; or it counts."""
        snapshot = saving.snapshot
        saving.take_answer()
        if saving.problem:
            self._saving = None
            self._failed(snapshot, saving.problem)
        elif saving.stage == "drafted":
            saving.stage = "written"
            self._ask_for(saving, list(self._replicas.shards))
            for worker in snapshot.owners:
                saving.workers.add(worker)
                first = worker == min(snapshot.asking, default=-1)
                self._outgoing.to_worker(worker, Save(snapshot.name, snapshot.step, [], first))
        elif saving.stage == "written":
            saving.stage = "committed"
            saving.at_store = self._keeping.commit(snapshot.step, saving.files, snapshot.state, snapshot.metric)
        else:
            self._saving = None
            self._outgoing.record("checkpoint", None, {"step": snapshot.step})
            self._answer(snapshot, "")
            self._release(snapshot)

    def _ask_for(self, saving: Saving, shards: list[int]) -> None:
        for number, duty in self._replicas.duties(shards).items():
            saving.waiting.setdefault(number, []).append(duty)
            self._outgoing.to_server(number, Save(saving.snapshot.name, saving.snapshot.step, duty))

    def _answer(self, snapshot: Snapshot, problem: str) -> None:
        """Tell those whose loops wait for it."""
        asking, snapshot.asking = snapshot.asking, []
        for worker in asking:
            self._outgoing.to_worker(worker, SaveEnded(problem))

    def _failed(self, snapshot: Snapshot, problem: str) -> None:
        self._keeping.give_up(snapshot.step)
        self._answer(snapshot, problem)
        snapshot.tries += 1
        if snapshot.last and snapshot.tries <= len(TRY_AGAIN_AFTER_S):
            self._again = snapshot
            what = f"it is the last one, and tried again in {TRY_AGAIN_AFTER_S[snapshot.tries - 1]:g} s"
        elif snapshot.last:
            self.unsaved = f"the last checkpoint, of step {snapshot.step}, could not be written: {problem}"
            what = "it was the last one"
        else:
            self._lost = snapshot.number
            what = "training goes on, older checkpoints stay"
        self._outgoing.record("checkpoint_failed", None, {"step": snapshot.step, "reason": f"{problem}; {what}"})
        if snapshot is not self._again:
            self._release(snapshot)

    def _release(self, snapshot: Snapshot) -> None:
        del self._open[snapshot.name]
        self._outgoing.to_servers(Release(snapshot.name))
        for worker in snapshot.owners:
            self._outgoing.to_worker(worker, Release(snapshot.name))
