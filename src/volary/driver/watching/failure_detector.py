"""Detects lost and stuck workers: a plain state machine over heartbeats and a clock that is handed in.

What happens to a worker, told apart by what it says of itself, and by what the engine sees of its process:
- died: its connection has ended without a goodbye, and it has not come back.
- missing: it has not come.
- silent: no beat comes, and its process does not work. It is stopped, or its host or link is gone. Seconds decide.
- stuck: it makes no progress, and others wait for it. It is slow or hangs: minutes decide; see `waiting`.
- cut, left: all wait for each other, since a link is cut, or a rank has left the user's loop.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from volary.driver.watching.stays import Stays
from volary.driver.watching.waiting import STACK_WITHIN_S, is_mute, standing_still
from volary.driver.watching.worker_status import (
    CARRYING,
    FIRST_STEPS,
    IDLE,
    STARTING,
    WAITING,
    Kind,
    LostWorker,
    Rules,
    Trouble,
    Usual,
    WorkerBeat,
    WorkerStatus,
)
from volary.run.verdict import Verdict

AWAY_S = 3.0  # a worker whose connection broke has so long to come back; one whose process ended is known before
LONG_S = 2.0  # a wait that is longer than what short exchanges take
LONGER = 2.0  # times as long as what was harmless before is worth another warning
LOOK_S = 0.5  # at most this much time is seen to pass between two ticks: a watch that slept blames nobody for it

__all__ = ["WAITING", "FailureDetector", "Kind", "LostWorker", "Rules", "WorkerBeat", "WorkerStatus"]


class FailureDetector:
    """Watches `world_size` workers by `rules`. lost: those given up, first cause first. suspects: new since cleared."""

    def __init__(self, world_size: int, rules: Rules, now: float) -> None:
        self.world_size, self.rules = world_size, rules
        self.lost: list[LostWorker] = []
        self.suspects: list[LostWorker] = []
        first_spare = world_size - rules.spares
        self.workers = {rank: WorkerStatus(rank, spare=rank >= first_spare) for rank in range(world_size)}
        self._rank_of: dict[int, int] = {}
        self._suspected: dict[int, Trouble] = {}  # as they last were
        self._stays = Stays()
        self._usual_wait = Usual()  # for how long all wait for each other, in a step
        self._clock = now
        self._watched_s = 0.0

    @property
    def late(self) -> set[int]:
        """Ranks of those that were let in later and have not begun: they are starting, or have not come."""
        late = (one for one in self.workers.values() if one.rank >= self.world_size and not one.goodbye)
        return {worker.rank for worker in late if worker.phase == STARTING and not worker.stepped}

    def all_left_but(self, ranks: Collection[int]) -> bool:
        """Whether all others have said goodbye or are given up."""
        gone = {lost.rank for lost in self.lost}.union(ranks)
        return all(worker.goodbye or rank in gone for rank, worker in self.workers.items())

    @property
    def quiet(self) -> set[int]:
        """Ranks that have not beaten for a moment: what their processes do is worth a look."""
        quiet_s, workers = self.rules.suspect_after_s / 3, self.workers.values()
        return {worker.rank for worker in workers if worker.counts and self._watched_s - worker.last_beat_at > quiet_s}

    @property
    def spares(self) -> list[int]:
        """Ranks of those that are ready to take the place of a lost worker."""
        return [rank for rank in self._ready if rank < self.world_size]

    @property
    def joiners(self) -> list[int]:
        """Ranks of those that were let in later, and are ready to train with others in step."""
        return [rank for rank in self._ready if rank >= self.world_size]

    @property
    def _ready(self) -> list[int]:
        return [one.rank for one in self.workers.values() if one.spare and one.counts and one.phase == IDLE]

    @property
    def unneeded(self) -> set[int]:
        """Ranks of those that nobody waits for, as they do not train (yet)."""
        return {worker.rank for worker in self.workers.values() if worker.spare}

    @property
    def staying(self) -> int:
        """The number of those that train, or will once they have come."""
        gone = {lost.rank for lost in self.lost}
        waiting = {rank for rank in self.unneeded if rank < self.world_size}
        return sum(not worker.goodbye and rank not in gone | waiting for rank, worker in self.workers.items())

    def enlist(self, ranks: Collection[int]) -> None:
        """Let these, if they were spare, train from now on."""
        for rank in ranks:
            self.workers[rank].spare = False

    @property
    def _training(self) -> list[WorkerStatus]:
        """The workers that train: spare ones wait, and nobody for them."""
        return [worker for worker in self.workers.values() if not worker.spare]

    def placed(self, hosts: Mapping[int, str]) -> None:
        """Note the hosts where workers are started, by rank, until they come and report their own."""
        for rank, host in hosts.items():
            if not self.workers[rank].pid:
                self.workers[rank].host = host

    def expect(self, *, spare: bool = False) -> int:
        """Expect one more worker; return its rank, above all there were. spare: it waits until others pause."""
        rank = max(self.workers, default=-1) + 1
        # a new dictionary: another thread may be looking through the old one
        self.workers = self.workers | {rank: WorkerStatus(rank, expected_at=self._watched_s, spare=spare)}
        return rank

    def take_in(self, rank: int) -> None:
        """Know a worker that another driver has let in."""
        if rank not in self.workers:
            self.workers = self.workers | {rank: WorkerStatus(rank, spare=True)}

    def forget(self, ranks: Collection[int]) -> None:
        """Know nothing of these, which were gone before another driver was lost."""
        self.workers = {rank: worker for rank, worker in self.workers.items() if rank not in ranks}

    def why_out(self, host: str) -> str:
        """A sentence why nobody of `host` is let in, as who was did not stay; empty if they are."""
        return self._stays.why_out(host, self._watched_s)

    def dismiss(self, rank: int) -> None:
        """Go on without a worker that is given up: nobody waits for it any more."""
        self.workers[rank].dismissed = True

    def fell(self, rank: int, sentence: str) -> None:
        """A worker has gone and not finished its work, by what others know of it or itself says."""
        self._give_up(LostWorker(rank, "died", sentence))

    def joined(self, peer: int, rank: int, pid: int, host: str) -> bool:
        """A worker has connected, or come back; False if there is no such rank, or it is somebody else's."""
        worker = self.workers.get(rank)
        if worker is None or worker.dismissed or worker.goodbye or any(lost.rank == rank for lost in self.lost):
            return False
        if worker.pid and (worker.pid, worker.host) != (pid, host):
            return False
        if not worker.pid:
            worker.moved_at = self._watched_s
            if rank >= self.world_size:
                self._stays.arrived(rank, host, self._watched_s)
        worker.peer, worker.pid, worker.host = peer, pid, host
        worker.last_beat_at = self._watched_s
        self._rank_of[peer] = rank
        return True

    def is_cause(self, verdict: Verdict) -> bool:
        """Whether a worker's own account is reason enough to end any run: an error of its own, or a refusal.

        One that came later and is refused before it took part ends nothing but itself, whatever it is then.
        """
        if verdict.rank >= self.world_size and self.workers[verdict.rank].spare:
            return False
        return verdict.outcome == "failed" or (verdict.outcome == "refused" and verdict.rank < self.world_size)

    def worker_at(self, peer: int) -> WorkerStatus | None:
        """The worker behind a connection."""
        rank = self._rank_of.get(peer)
        return None if rank is None else self.workers[rank]

    def on_beat(self, peer: int, beat: WorkerBeat) -> None:
        """Take in a heartbeat that came over connection `peer`."""
        worker = self.worker_at(peer)
        if worker is None or worker.goodbye or worker.dismissed:
            return
        worker.on_beat(beat, self._watched_s)
        if beat.bye and beat.leaving:
            self._stays.went(worker.rank, self._watched_s)

    def left(self, peer: int) -> None:
        """A connection has ended; whoever is behind it may come back with another one."""
        worker = self.worker_at(peer)
        if worker is not None and worker.peer == peer:
            worker.peer, worker.away_at = None, self._watched_s

    @property
    def given_up(self) -> set[int]:
        """Ranks of those that are given up and have not said goodbye: their processes may hang."""
        return {lost.rank for lost in self.lost if not self.workers[lost.rank].goodbye}

    def conclude(self) -> None:
        """The run is over: who is away does not come back."""
        # whose connection ended first: a launcher ends the others for it
        for worker in sorted(self.workers.values(), key=lambda one: one.away_at):
            if worker.away:
                self._give_up(self._away(worker))

    def observed(self, here: Collection[int], working: Collection[int]) -> None:
        """Note what the engine sees: whose processes are on this machine, and which have just used a processor."""
        for rank, worker in self.workers.items():
            worker.process_here = rank in here
            if rank in working:
                worker.worked_at = self._watched_s

    def tick(self, now: float) -> list[int]:
        """Judge everybody; returns the connections of workers whose stack should be asked for."""
        self._watched_s += min(now - self._clock, LOOK_S)
        self._clock = now
        self._measure_wait()
        troubles = list(self._absent()) or list(self._standing_still())
        ask = []
        for trouble in troubles:
            worker = self.workers[trouble.lost.rank]
            if self._wants_stack(worker, trouble):
                worker.asked_at = self._watched_s
                ask.append(worker.peer or 0)
            if trouble.over:
                self._give_up(trouble.lost)
            elif worker.rank not in self._suspected and self._is_to_report(worker, trouble):
                self._suspected[worker.rank] = trouble
                self.suspects.append(trouble.lost)
        self._follow({trouble.lost.rank: trouble for trouble in troubles})
        return ask

    def _follow(self, troubles: Mapping[int, Trouble]) -> None:
        """Note for how long those that were reported last, and which have passed: what a slow link does is learnt."""
        for rank, reported in list(self._suspected.items()):
            if rank in troubles:
                self._suspected[rank] = troubles[rank]
            else:
                harmless_s = self.workers[rank].harmless_s
                harmless_s[reported.lost.kind] = max(reported.by_link_s, harmless_s.get(reported.lost.kind, 0.0))
                del self._suspected[rank]

    def _absent(self) -> Iterator[Trouble]:
        """Report workers that do not beat. While there are any, nobody counts as stuck: others may wait for them."""
        for worker in self.workers.values():
            if worker.counts:
                yield from self._silent(worker)
            elif worker.away and self._watched_s - worker.away_at > AWAY_S:
                yield Trouble(self._away(worker), over=True)
            elif not worker.pid and not worker.dismissed and self._is_late(worker):
                sentence = f"did not come within {self.rules.startup_timeout_s:.0f} s"
                yield Trouble(LostWorker(worker.rank, "missing", sentence), over=True)

    def _silent(self, worker: WorkerStatus) -> Iterator[Trouble]:
        rules, silent_s = self.rules, self._watched_s - max(worker.last_beat_at, self._carried_at(worker))
        suspect_s, limit_s = rules.suspect_after_s, rules.give_up_after_s
        if worker.phase == STARTING:  # torch is imported, which may hold the interpreter's lock
            suspect_s, limit_s = max(suspect_s, rules.startup_timeout_s / 2), max(limit_s, rules.startup_timeout_s)
        if silent_s <= suspect_s or is_mute(worker, rules, self._watched_s):
            return
        sentence = f"has been silent for {silent_s:.0f} s: it is stopped, or its host is gone"
        if worker.process_here and self._is_alone(worker):
            sentence, limit_s = f"has been silent for {silent_s:.0f} s: its process is stopped", float("inf")
        by_link_s = 0.0 if worker.process_here else silent_s
        yield Trouble(LostWorker(worker.rank, "silent", sentence), by_link_s, over=silent_s > limit_s)

    def _carried_at(self, silent: WorkerStatus) -> float:
        """The time when others that wait long last moved bytes: the heartbeats of one may queue behind these."""
        now_s, others = self._watched_s, [one for one in self.workers.values() if one.counts and one is not silent]
        waiting = [one for one in others if one.phase in CARRYING and now_s - one.moved_at > LONG_S]
        return max((one.carried_at for one in waiting), default=0.0)

    def _is_alone(self, worker: WorkerStatus) -> bool:
        """Whether the run is this worker's alone: others that have left wait for its end, too."""
        return self.workers.keys() == {worker.rank}

    def _away(self, worker: WorkerStatus) -> LostWorker:
        """Say what happened to a worker whose connection has ended: it died, or nothing answers where it was."""
        silent_s = worker.away_at - worker.last_beat_at
        if silent_s < self.rules.suspect_after_s or worker.process_here:
            return LostWorker(worker.rank, "died", "died")
        words = "and then its connection ended: its host is gone or cut off, or it died"
        return LostWorker(worker.rank, "silent", f"had been silent for {silent_s:.0f} s, {words}")

    def _is_late(self, worker: WorkerStatus) -> bool:
        return self._watched_s - worker.expected_at > self.rules.startup_timeout_s

    def _standing_still(self) -> Iterator[Trouble]:
        return standing_still(self._training, self.rules, self._usual_wait.seconds, self._watched_s)

    def _wants_stack(self, worker: WorkerStatus, trouble: Trouble) -> bool:
        """Whether to ask for it: when a standstill is first seen, and again, for news, before it is judged."""
        if worker.peer is None or trouble.lost.kind != "stuck" or is_mute(worker, self.rules, self._watched_s):
            return False
        if worker.asked_at is None:
            return True
        return trouble.almost and self._watched_s - worker.asked_at > STACK_WITHIN_S

    def _is_to_report(self, worker: WorkerStatus, trouble: Trouble) -> bool:
        """Whether it is time to warn: a worker that was asked for its stack is given a moment to say it.

        What a link alone tells of is worth another warning if it takes longer than what has passed by itself before
        (Chandra & Toueg, "Unreliable failure detectors for reliable distributed systems", 1996).
        """
        if 0 < trouble.by_link_s <= LONGER * worker.harmless_s.get(trouble.lost.kind, 0.0):
            return False
        if trouble.lost.kind != "stuck" or worker.asked_at is None or worker.stack:
            return True
        return self._watched_s - worker.asked_at > STACK_WITHIN_S

    def _measure_wait(self) -> None:
        """Measure for how long all have been waiting for each other in this step, if they do."""
        here = [worker for worker in self._training if worker.counts]
        if not here or any(worker.done < FIRST_STEPS for worker in here):
            return
        waited = all(worker.phase in WAITING for worker in here)
        wait_s = self._watched_s - max(worker.moved_at for worker in here)
        self._usual_wait.add(max(worker.step for worker in here), wait_s if waited else 0.0)

    def _give_up(self, lost: LostWorker) -> None:
        if all(known.rank != lost.rank for known in self.lost):
            self.lost.append(lost)
            self._stays.went(lost.rank, self._watched_s)
