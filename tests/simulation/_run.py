"""One simulated run: driver, servers and workers in one world, and what befalls them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simulation._driver import Driver
from simulation._faults import Faults
from simulation._history import History, Saved
from simulation._keeping import Checkpoints
from simulation._network import Network
from simulation._server import Disk, Server
from simulation._worker import Habits, Worker
from simulation._world import World
from volary.server.client.client import Client
from volary.server.protocol.messages import WorkerHello
from volary.server.protocol.slices import Part, Slice
from volary.server.roster.roster import Roster, RosterSettings
from volary.server.shards.shard import Shard
from volary.train.served.residuals import Residuals

LIMIT_S = 120.0  # simulated; a run takes one or two
STARTING_S = 0.3  # at most, from being let into a run until coming


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is simulated. model: a consistency plug-in. befall: what happens to the run besides its work.

    workers, sizes (samples of an epoch and of a batch): None: the seed's choice, like others. compute_s: of forward and
    of backward. roster, client, shard, residuals: or broken ones.
    """

    model: Any
    befall: Callable[[Faults], None] = lambda faults: None
    workers: int | None = None
    replicas: int = 1
    epochs: int = 2
    sizes: tuple[int, int] | None = None
    share_not_finite: float = 0.0
    compute_s: float = 0.01
    roster: type[Roster] = Roster
    client: type[Client] = Client
    residuals: type[Residuals] = Residuals
    shard: type[Shard] = Shard


class Run:
    """A run of `case`, of which the seed decides all else. survivor: the worker that nothing kills.

    before, resumed: a run of the same case that has ended, and the checkpoint of it that this one goes on from.
    """

    def __init__(self, case: Case, seed: int, before: Run | None = None, resumed: Saved | None = None) -> None:
        self.world = World(seed)
        random = self.world.random
        self.case = case
        self.network = Network(self.world, delay_s=random.choice((0.0005, 0.003, 0.02)))
        self.survivor = 0
        sizes = case.sizes or (random.randint(4, 12), random.randint(2, 4))
        self.samples, self.batch_size = (before.samples, before.batch_size) if before else sizes
        self.servers_count = random.randint(case.replicas, 3)
        self.workers_count = case.workers or random.randint(1, 3)
        self.disk: Disk = {}
        self.history = History()
        self._resumed = resumed
        self.slices = [
            Slice(number, number % self.servers_count, number, (Part(number, 0, 1),))
            for number in range(len(before.slices) if before else random.randint(3, 4))
        ]
        self._start()

    def _start(self) -> None:
        case, resumed = self.case, self._resumed
        if resumed is not None:
            self.history.first = resumed.state["closings"]
            self.history.began = resumed.values[0]
            self.disk |= {(resumed.step, number): value for number, value in resumed.values.items()}
        self.driver = Driver(self.world, self.history)
        evaluate_every, checkpoint_every = (self.world.random.choice((1, 2, 5)) for _ in range(2))
        terms = RosterSettings(
            workers=self.workers_count,
            servers=self.servers_count,
            replicas=case.replicas,
            give_up_after_s=1.5,  # of virtual seconds
            batch_size=self.batch_size,
            steps=lambda per_epoch: case.epochs * per_epoch,
            evaluate_every=lambda per_epoch: evaluate_every,
            checkpoint_every=lambda per_epoch: checkpoint_every,
        )
        restored = (resumed.step, resumed.state) if resumed else None
        keeping = Checkpoints(self.history, self.disk)
        self.roster = case.roster(terms, case.model, keeping, self.history.said, restored)
        self.driver.begin(self.roster)
        self.habits = Habits(
            slices=self.slices,
            hello=WorkerHello(0, {}, self.samples, 5, "loss", False, residuals=True),
            fetch_every=getattr(case.model, "fetch_every", 1),
            asks_ahead=case.model.asks_ahead,
            share_not_finite=case.share_not_finite,
            compute_s=case.compute_s,
            client=case.client,
            residuals=case.residuals,
        )
        self.servers = {number: self._server(number) for number in range(self.servers_count)}
        self.workers: dict[int, Worker] = {}
        for _ in range(self.workers_count):
            self._come(self._worker())
        slow = self.world.random.choice(list(self.workers.values()))
        slow.slow = self.world.random.choice((1.0, 4.0))
        case.befall(Faults(self))

    def join(self) -> int | None:
        """One more worker is let in, and comes a little later; its rank, or None if the run is over."""
        if self.roster.outcome:
            return None
        worker = self._worker()
        self.roster.expect(worker.rank)
        worker.process.after(self.world.random.uniform(0, STARTING_S), self._come, worker)
        return worker.rank

    def _worker(self) -> Worker:
        rank = len(self.workers)
        worker = Worker(self.network, rank, self.habits, self.servers, self.history)
        worker.standing = lambda: (self.history.newest, min(self.driver.finished.values(), default=0))
        self.workers[rank] = worker
        return worker

    def _come(self, worker: Worker) -> None:
        self.driver.accept(worker.begin(self.driver.process))

    def lose(self, rank: int, reason: str) -> None:
        """The driver's watch gives a worker up."""
        self.driver.say(self.roster.lost(rank, reason, self.world.now))

    def stop(self) -> None:
        """Somebody asks the run to end."""
        self.driver.say(self.roster.finish(self.world.now))

    def play(self) -> History:
        """Let it run to its end. Raises AssertionError if it has none."""
        over = self.world.run(self._is_over, LIMIT_S)
        assert over, f"the run does not end: {self._standing()}"
        self.history.stayed = {
            rank for rank, worker in self.workers.items() if worker.outcome in ("finished", "stopped")
        }
        return self.history

    def final(self) -> list[dict[int, Any]]:
        """By server that stayed to the end, its slices."""
        return [server.values for server in self.servers.values() if server.outcome == self.roster.outcome]

    def _server(self, number: int) -> Server:
        copies = self.case.replicas
        kept = {(number - copy) % self.servers_count for copy in range(copies)}
        shards = {one.number: one.shard for one in self.slices if one.shard in kept}
        server = Server(self.network, number, shards, self.disk, self.case.shard)
        self.driver.accept(server.begin(self.driver.process))
        return server

    def _is_over(self) -> bool:
        if not self.roster.ended:
            return bool(self.roster.failure)
        return all(each.outcome or not each.process.up for each in (*self.workers.values(), *self.servers.values()))

    def _standing(self) -> str:
        left = [each.process.name for each in (*self.workers.values(), *self.servers.values()) if not each.outcome]
        return f"after update {self.history.newest} {', '.join(left)} wait for ever; roster: {self.roster.outcome}"
