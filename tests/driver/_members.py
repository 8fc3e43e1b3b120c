"""Workers that keep step, simulated beside the driver's own service: they train, pause, meet again, come and go."""

from __future__ import annotations

import random
from collections import deque
from copy import deepcopy
from itertools import count
from typing import Any

from msgspec import convert, to_builtins

from volary.driver.attempt.members import TrainingMembers
from volary.driver.heartbeats import HeartbeatService
from volary.driver.servers.joining import JoinService
from volary.driver.watching.failure_detector import FailureDetector, Rules
from volary.run.control.requests import ChangeMembers, LeaveRun
from volary.run.database.journal import Journal
from volary.run.launch.members import GroupMembers
from volary.run.verdict import Verdict
from volary.train.recovery.member_news import MemberNews

TICK_S = 0.4  # between two looks of the driver's
BEAT_S = 1.2  # between two beats of a worker that trains, too
SUSPECT_S, GIVE_UP_S = 5.0, 10.0
STILL_S = (0.5, 3.0, 9.0, 11.0, 20.0)  # for how long a worker is stopped, cut off from the driver, or away from it


class Worker:
    """group: the one that it has formed with others; None: it has not trained yet. step: updates that it has.

    peer: its connection to the driver; 0: it has none. stopped, cut_off: it does nothing; it trains, and neither hears
    the driver nor is heard. since_s, until_s: from when until when it is one of these, or without a connection.
    """

    def __init__(self, rank: int, group: GroupMembers | None) -> None:
        self.rank, self.peer, self.group = rank, 0, group
        self.stopped = self.cut_off = False
        self.since_s = self.until_s = 0.0
        self.news, self.inbox = MemberNews(10), deque[dict[str, Any]]()
        self.step, self.beats, self.waits, self.gone = 0, 0, group is None, False
        self.requests: list[dict[str, Any]] = []
        self.leaving = False  # it was asked so where it runs

    def hears(self) -> None:
        """Take one message of the driver's."""
        message = self.inbox.popleft()
        if "end" in message:
            self.gone = True
        if "members" in message:
            self.news.change(**message["members"])
        self.requests = message.get("requests", self.requests)

    @property
    def troubled(self) -> bool:
        """Whether the driver does not hear it."""
        return self.stopped or self.cut_off or not self.peer

    @property
    def number(self) -> int:
        return -1 if self.group is None else self.group.number


class World:
    """Some workers of a run, and its driver. seed: of all that happens. learnt: by step, how often it was updated with.

    names: the members, each time that the driver named some. asked: to leave. handed: that have handed over what they
    have, to leave. met: the number of the newest group that has formed.
    now: the time, in seconds.
    """

    def __init__(
        self,
        seed: int,
        journal: Journal,
        workers: int = 3,
        spares: int = 0,
        *,
        members: type[TrainingMembers] = TrainingMembers,
        watch: type[FailureDetector] = FailureDetector,
    ) -> None:
        self.draw, first = random.Random(seed), GroupMembers(tuple(range(workers)))
        self.now, self.met, self._peers = 0.0, 0, count(1)
        self._at: dict[int, Worker] = {}  # by connection
        rules = Rules(SUSPECT_S, GIVE_UP_S, 120, spares=spares)
        self.watch = watch(workers + spares, rules, now=0.0)
        self.members = members(first.ranks)
        self.hub = HeartbeatService(self.watch, journal, lambda *_: (), members=self.members)
        self.door = JoinService(self.watch, lambda _: "", lambda _: None, spare=True)
        self.workers: dict[int, Worker] = {}
        self.learnt: dict[int, set[int]] = {}  # the numbers of the groups that have
        self.names = [first]
        self.asked, self.handed = set[int](), set[int]()
        for rank in range(workers + spares):
            self._comes(Worker(rank, first if rank < workers else None))

    def _comes(self, worker: Worker) -> None:
        self.workers[worker.rank] = worker
        self._connects(worker)

    def _connects(self, worker: Worker) -> None:
        worker.peer = next(self._peers)
        self._at[worker.peer] = worker
        self._deliver(self.hub.opened(worker.peer, {"rank": worker.rank, "pid": 9, "host": "h"}, self.now))
        self.beats(worker)

    def _deliver(self, replies: Any) -> None:
        for peer, message in replies:
            worker = self._at.get(peer)
            if isinstance(message, dict) and message.keys() & {"members", "requests", "end"} and worker is not None:
                worker.inbox.append(deepcopy(message))  # as it is now
        if self.members.now != self.names[-1]:
            self.names.append(self.members.now)

    def beats(self, worker: Worker, bye: Verdict | None = None) -> None:
        """The worker says how it is, if the driver can hear it."""
        if worker.troubled:
            return
        worker.beats += 1
        phase = "idle" if worker.group is None else "exchange"
        beat = {"number": worker.beats, "step": worker.step, "phase": phase, "progress": worker.beats}
        beat |= {
            "rows": [],
            "events": [],
            "paused": to_builtins(worker.news.paused),
            "leaving": worker.leaving,
            "bye": bye,
        }
        self._deliver(self.hub.received(worker.peer, beat, self.now))

    @property
    def here(self) -> list[Worker]:
        """The workers that live, and have not left."""
        return [worker for worker in self.workers.values() if not worker.gone]

    def joins(self) -> None:
        """One more worker comes."""
        replies = list(self.door.opened(900, {"workers": 1}, 0.0))
        self._comes(Worker(replies[0][1]["ranks"][0], None))

    def leave(self, rank: int) -> None:
        """A worker is asked to leave; those that cannot are refused."""
        if not self.members.why_not_leave(rank):
            self.asked.add(rank)
        self._deliver(self.hub.leave(LeaveRun(rank)))

    def interrupted(self, worker: Worker) -> None:
        """A worker that has joined is asked to leave where it runs, as by Ctrl-C."""
        if worker.rank >= self.watch.world_size:
            worker.leaving = True
            self.asked.add(worker.rank)

    def survives_without(self, victim: Worker) -> bool:
        """Whether somebody is left who has a state to train on from."""
        ranks = set(self.members.now.ranks) - {victim.rank}
        well = [one for one in self.here if not one.troubled and not one.leaving and one.group is not None]
        return any(one.rank in ranks for one in well)

    @property
    def given_up(self) -> set[int]:
        """Ranks of those that the driver has given up."""
        return {lost.rank for lost in self.watch.lost}

    def befalls(self, worker: Worker, what: str) -> None:
        """Stop it, cut it off from the driver, or break its connection, for a while after which it goes on."""
        worker.since_s, worker.until_s = self.now, self.now + self.draw.choice(STILL_S)
        match what:
            case "stops":
                worker.stopped = True
            case "is cut off":
                worker.cut_off = True
            case _:
                peer, worker.peer = worker.peer, 0
                self._deliver(self.hub.closed(peer, self.now))

    def time_passes(self) -> None:
        """The driver looks, and every worker that can beats if it is time."""
        self.now += TICK_S
        self._deliver(self.hub.tick(self.now))
        for worker in self.here:
            if worker.troubled and self.now >= worker.until_s:
                self._recovers(worker)
            elif worker.troubled and self.now - worker.since_s > GIVE_UP_S + 2 * TICK_S:
                assert worker.rank in self.given_up, "silence is borne for longer than it should"
            elif self.now % BEAT_S < TICK_S:
                self.beats(worker)

    def _recovers(self, worker: Worker) -> None:
        worker.stopped = worker.cut_off = False
        if not worker.peer:
            self._connects(worker)

    def dies(self, worker: Worker) -> None:
        """A worker is killed; the driver sees it."""
        worker.gone = True
        self._deliver(self.hub.fell({worker.rank: "was killed"}))

    def goes_on(self, worker: Worker) -> None:
        """One thing that a worker does by itself: hear, leave, meet the others, train together, or beat."""
        if worker.stopped:
            return
        if worker.group is None and worker.leaving and not worker.troubled:
            self._leaves(worker)  # whoever may have named it meanwhile
        elif worker.inbox and not worker.troubled and self.draw.random() < 0.7:
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
            if worker.group is not None and not worker.troubled:
                self._leaves(worker)
            return
        worker.waits = True
        group = [self.workers[rank] for rank in members.ranks]
        if all(one.news.newest == members and not one.gone and not one.stopped for one in group):
            self.met = max(self.met, members.number)
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
        if any(one.stopped and not one.gone and one.number == group.number for one in workers):
            return  # the others wait for it in the exchange, until they hear that it is given up
        whole = all(not one.gone and one.number == group.number and not one.waits for one in workers)
        here = [one for one in workers if not one.gone and one.number == group.number and not one.waits]
        done = here if whole else self.draw.sample(here, self.draw.randint(0, len(here)))
        if whole or self.draw.random() < 0.3:  # the sums had come to some of them
            for one in done:
                one.step += 1
                assert not whole or group.number >= self.met, "a group that others have followed trains on"
                self.learnt.setdefault(one.step, set()).add(group.number)
        if not whole:
            for one in here:
                one.waits = True
            return
        asked = [one for one in workers[0].requests if one["number"] == group.number]
        if asked:
            change = convert(asked[-1], ChangeMembers)
            self.handed.update(change.leaving)
            for one in self.draw.sample(workers, len(workers)):
                one.waits, one.news.paused = True, change
                self.beats(one)

    def settles(self) -> None:
        """Let all go on, without more trouble, for so long that nothing is left to be done."""
        longest = max([0.0, *(one.until_s - self.now for one in self.here)])
        for _ in range(60 + round(longest / TICK_S)):
            self.time_passes()
            for worker in self.draw.sample(self.here, len(self.here)):
                self.goes_on(worker)
                self.beats(worker)
