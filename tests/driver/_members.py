"""Workers that keep step, simulated beside the driver's own service: they train, pause, meet again, come and go."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

from volary.driver.attempt.members import TrainingMembers
from volary.driver.heartbeats import HeartbeatService
from volary.driver.servers.joining import JoinService
from volary.driver.watching.failure_detector import FailureDetector, Rules
from volary.run.database.journal import Journal
from volary.run.launch.members import GroupMembers
from volary.run.verdict import Verdict
from volary.train.recovery.member_news import MemberNews


class Worker:
    """group: the one that it has formed with others; None: it has not trained yet. step: updates that it has."""

    def __init__(self, rank: int, group: GroupMembers | None) -> None:
        self.rank, self.peer, self.group = rank, rank + 1, group
        self.news, self.inbox = MemberNews(10), deque[dict[str, Any]]()
        self.step, self.beats, self.waits, self.gone = 0, 0, group is None, False
        self.requests: list[dict[str, Any]] = []
        self.leaving = False  # it was asked so where it runs

    def hears(self) -> None:
        """Take one message of the driver's."""
        message = self.inbox.popleft()
        if "members" in message:
            self.news.hear(**message["members"])
        self.requests = message.get("requests", self.requests)

    @property
    def number(self) -> int:
        return -1 if self.group is None else self.group.number


class World:
    """Some workers of a run, and its driver. seed: of all that happens. learnt: by step, how often it was updated with.

    names: the members, each time that the driver named some.
    """

    def __init__(self, seed: int, journal: Journal, workers: int = 3, spares: int = 0) -> None:
        self.draw, first = random.Random(seed), GroupMembers(tuple(range(workers)))
        self.watch = FailureDetector(workers + spares, Rules(5, 10, 120, spares=spares), now=0.0)
        self.members = TrainingMembers(first.ranks)
        self.hub = HeartbeatService(self.watch, journal, lambda *_: (), members=self.members)
        self.door = JoinService(self.watch, lambda _: "", lambda _: None, spare=True)
        self.workers: dict[int, Worker] = {}
        self.learnt: dict[int, set[int]] = {}  # the numbers of the groups that have
        self.names = [first]
        self.asked: set[int] = set()
        for rank in range(workers + spares):
            self._comes(Worker(rank, first if rank < workers else None))

    def _comes(self, worker: Worker) -> None:
        self.workers[worker.rank] = worker
        self._deliver(self.hub.opened(worker.peer, {"rank": worker.rank, "pid": 9, "host": "h"}, 0.0))
        self.beats(worker)

    def _deliver(self, replies: Any) -> None:
        for peer, message in replies:
            worker = self.workers.get(peer - 1)
            if isinstance(message, dict) and message.keys() & {"members", "requests"} and worker is not None:
                worker.inbox.append(message)
        if self.members.now != self.names[-1]:
            self.names.append(self.members.now)

    def beats(self, worker: Worker, bye: Verdict | None = None) -> None:
        """The worker says how it is."""
        worker.beats += 1
        phase = "idle" if worker.group is None else "exchange"
        beat = {"number": worker.beats, "step": worker.step, "phase": phase, "progress": worker.beats}
        beat |= {"rows": [], "events": [], "paused": worker.news.paused, "leaving": worker.leaving, "bye": bye}
        self._deliver(self.hub.received(worker.peer, beat, 0.0))

    @property
    def here(self) -> list[Worker]:
        """Those that live, and have not left."""
        return [worker for worker in self.workers.values() if not worker.gone]

    def joins(self) -> None:
        """One more worker comes."""
        replies = list(self.door.opened(900, {"workers": 1}, 0.0))
        self._comes(Worker(replies[0][1]["ranks"][0], None))

    def leave(self, rank: int) -> None:
        """A worker is asked to leave; those that cannot are refused."""
        if not self.members.why_not_leave(rank):
            self.asked.add(rank)
        self._deliver(self.hub.leave(rank))

    def interrupted(self, worker: Worker) -> None:
        """A worker that has joined is asked to leave where it runs, as by Ctrl-C."""
        if worker.rank >= self.watch.world_size:
            worker.leaving = True
            self.asked.add(worker.rank)

    def survives_without(self, victim: Worker) -> bool:
        """Whether somebody is left who has a state to train on from."""
        ranks = set(self.members.now.ranks) - {victim.rank}
        return any(one.rank in ranks and one.group is not None and not one.leaving for one in self.here)

    def dies(self, worker: Worker) -> None:
        """A worker is killed; the driver sees it."""
        worker.gone = True
        self._deliver(self.hub.fell({worker.rank: "was killed"}))

    def goes_on(self, worker: Worker) -> None:
        """One thing that a worker does by itself: hear, leave, meet the others, train together, or beat."""
        if worker.group is None and worker.leaving:
            self._leaves(worker)  # whoever may have named it meanwhile
        elif worker.inbox and self.draw.random() < 0.7:
            worker.hears()
        elif worker.news.newest.number > worker.number:
            self._meets(worker)
        elif not worker.waits:
            self._trains(worker.group)
        else:
            self.beats(worker)

    def _meets(self, worker: Worker) -> None:
        """Be of the newest group, if all of it are there; or leave, if it is of others."""
        members = worker.news.newest
        if worker.rank not in members.ranks:
            if worker.group is not None:
                self._leaves(worker)
            return
        worker.waits = True
        group = [self.workers[rank] for rank in members.ranks]
        if all(one.news.newest == members and not one.gone for one in group):
            newest = max(one.step for one in group if one.group is not None or worker.group is None)
            for one in group:
                one.group, one.step, one.waits, one.news.paused = members, newest, False, None

    def _leaves(self, worker: Worker) -> None:
        worker.gone = True
        self.beats(worker, bye=Verdict(rank=worker.rank, outcome="left", step=worker.step))

    def _trains(self, group: GroupMembers | None) -> None:
        """A step of all of a group, after which it may pause; if one is gone or has heard of others, it breaks."""
        assert group is not None
        workers = [self.workers[rank] for rank in group.ranks]
        whole = all(not one.gone and one.number == group.number and not one.waits for one in workers)
        here = [one for one in workers if not one.gone and one.number == group.number and not one.waits]
        done = here if whole else self.draw.sample(here, self.draw.randint(0, len(here)))
        if whole or self.draw.random() < 0.3:  # the sums had come to some of them
            for one in done:
                one.step += 1
                self.learnt.setdefault(one.step, set()).add(group.number)
        if not whole:
            for one in here:
                one.waits = True
            return
        asked = [one["number"] for one in workers[0].requests if one["number"] == group.number]
        if asked:
            for one in self.draw.sample(workers, len(workers)):
                one.waits, one.news.paused = True, group.number
                self.beats(one)

    def settles(self) -> None:
        """Let all go on for so long that nothing is left to be done."""
        for _ in range(60):
            for worker in self.draw.sample(self.here, len(self.here)):
                self.goes_on(worker)
                self.beats(worker)
