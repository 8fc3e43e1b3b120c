"""One simulated run: driver, servers and workers in one world, and what befalls them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simulation._driver import Driver, NoJournal
from simulation._faults import Faults
from simulation._history import History, Saved
from simulation._keeping import Checkpoints
from simulation._network import Network
from simulation._server import Disk, Server
from simulation._together import Together
from simulation._worker import Habits, Worker
from simulation._world import World
from volary.driver.heartbeats import HeartbeatService
from volary.driver.watching.failure_detector import FailureDetector, Rules
from volary.server.client.client import Client
from volary.server.protocol.hello import WorkerHello
from volary.server.protocol.norms import ClipNorm
from volary.server.protocol.slices import Slice
from volary.server.roster.replica_ranks import ReplicaRanks
from volary.server.roster.roster import LEAVE_S, Roster
from volary.server.roster.settings import RosterSettings
from volary.server.shards.shard import Shard
from volary.sharding.epochs import Epochs
from volary.sharding.ranges import Range
from volary.train.served.residuals import Residuals

LIMIT_S = 120.0  # simulated; a run takes one or two
STARTING_S = 0.3  # at most, from being let into a run until coming
GIVE_UP_S = 1.5  # of silence
LOOK_S = 0.1  # between two looks at processes
MOST_S = GIVE_UP_S + LEAVE_S + 1.0  # from the end of the work until that of the run
RULES = Rules(suspect_after_s=GIVE_UP_S / 2, give_up_after_s=GIVE_UP_S, startup_timeout_s=4 * GIVE_UP_S)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A simulated run. model: a consistency plug-in. befall: what happens to the run besides its work.

    workers, sizes (samples of an epoch and of a batch): None: the seed's choice, like others. compute_s: of forward and
    of backward. watch, roster, client, shard, residuals, members: or broken ones. clip: what updates are clipped by, as
    the session says, or where `loops_clip` the workers. each: ranks that hold a replica, of which there are `workers`.
    """

    model: Any
    befall: Callable[[Faults], None] = lambda faults: None
    workers: int | None = None
    replicas: int = 1
    epochs: int = 2
    sizes: tuple[int, int] | None = None
    share_not_finite: float = 0.0
    compute_s: float = 0.01
    watch: type[FailureDetector] = FailureDetector
    roster: type[Roster] = Roster
    client: type[Client] = Client
    residuals: type[Residuals] = Residuals
    shard: type[Shard] = Shard
    clip: ClipNorm | None = None
    loops_clip: bool = False
    each: int = 1
    members: Callable[[Roster, int], ReplicaRanks] = ReplicaRanks


class Run:
    """A run of `case`, of which the seed decides all else. survivor: the worker, or replica, that nothing kills.

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
            Slice(number, number % self.servers_count, number, (Range(str(number), 0, 1),))
            for number in range(len(before.slices) if before else random.randint(3, 4))
        ]
        self._start()

    @property
    def steps_before(self) -> int:
        """Steps that the run had when it began."""
        epochs = Epochs(self.samples, self.batch_size)
        return epochs.steps_of(self._resumed.state["samples"]) if self._resumed else 0

    def _start(self) -> None:
        case, resumed = self.case, self._resumed
        if resumed is not None:
            self.history.first = resumed.state["closings"]
            self.history.began = resumed.values[0]
            self.disk |= {(resumed.step, number): value for number, value in resumed.values.items()}
        self.driver = Driver(self.world, self.history, case.each)
        evaluate_every, checkpoint_every = (self.world.random.choice((1, 2, 5)) for _ in range(2))
        terms = RosterSettings(
            workers=self.workers_count,
            servers=self.servers_count,
            replicas=case.replicas,
            give_up_after_s=GIVE_UP_S,
            batch_size=self.batch_size,
            steps=lambda per_epoch: case.epochs * per_epoch,
            evaluate_every=lambda per_epoch: evaluate_every,
            checkpoint_every=lambda per_epoch: checkpoint_every,
            write_every=lambda per_epoch: checkpoint_every + 1,
            clip_norm=case.clip.most if case.clip and not case.loops_clip else None,
            each=case.each,
        )
        restored = (resumed.step, resumed.state) if resumed else None
        keeping = Checkpoints(self.history, self.disk)
        self.roster = case.roster(terms, case.model, keeping, self.history.said, restored)
        self.members = self.roster if case.each == 1 else case.members(self.roster, case.each)
        self.watch = case.watch(self.workers_count * case.each, RULES, self.world.now)
        without = self.members.lost if case.model.elastic else None
        self.pulse = HeartbeatService(self.watch, NoJournal(), without, self.members.left)
        self._seen = self.world.random.random() < 0.7  # whether workers are on the driver's machine
        self._over_at = 0.0
        self.driver.begin(self.members, self.pulse)
        self._look()
        residuals = self.world.random.random() < 0.6
        self.habits = Habits(
            slices=self.slices,
            hello=WorkerHello(0, {}, self.samples, 5, "loss", False, residuals=residuals and case.each == 1),
            fetch_every=getattr(case.model, "fetch_every", 1),
            asks_ahead=case.model.asks_ahead,
            share_not_finite=case.share_not_finite,
            compute_s=case.compute_s,
            clip=case.clip if case.loops_clip else None,
            client=case.client,
            residuals=case.residuals,
        )
        self.servers = {number: self._server(number) for number in range(self.servers_count)}
        self.workers: dict[int, Worker] = {}
        self._replicas: dict[int, Together] = {}
        for _ in range(self.workers_count * case.each):
            self._come(self._worker())
        slow = self.world.random.choice(list(self.workers.values()))
        slow.slow = self.world.random.choice((1.0, 4.0))
        case.befall(Faults(self))

    def join(self) -> int | None:
        """One more worker is let in, and comes a little later; its rank, or None if the run is over."""
        if self.roster.outcome:
            return None
        worker = self._worker()
        assert worker.rank == self.watch.expect()
        self.roster.expect(worker.rank)
        worker.process.after(self.world.random.uniform(0, STARTING_S), self._come, worker)
        return worker.rank

    def _worker(self) -> Worker:
        rank = len(self.workers)
        together = self._replicas.setdefault(rank // self.case.each, Together(self.case.each))
        worker = Worker(self.network, rank, self.habits, self.servers, self.history, together)
        worker.standing = lambda: (self.history.newest, min(self.driver.finished.values(), default=0))
        self.workers[rank] = worker
        return worker

    def _come(self, worker: Worker) -> None:
        self.driver.accept(worker.beat(self.driver.process), self.pulse)
        self.driver.accept(worker.begin(self.driver.process), self.members)

    def kill(self, rank: int) -> None:
        """A worker is killed; whoever has started it sees that a little later."""
        self.workers[rank].process.kill()
        self.world.after(self.world.about(0.2), lambda: self.driver.say(self.pulse.fell({rank: "was killed"})))

    def _look(self) -> None:
        """Do the work that `volary.driver.drive.Drive` does ten times a second."""
        if self._seen:
            self.driver.say(self.pulse.observed(self.watch.quiet, ()))
        for rank in self.watch.given_up if self._seen and self.case.model.elastic else ():
            self.workers[rank].process.kill()
        for number in self.history.lost_servers:
            self.servers[number].process.kill()
        self._over_at = self._over_at or (self.world.now if self.roster.outcome else 0.0)
        self.world.after(LOOK_S, self._look)

    def stop(self) -> None:
        """Somebody asks the run to end."""
        self.driver.say(self.members.finish(self.world.now))

    def play(self) -> History:
        """Let it run to its end. Raises AssertionError if it has none."""
        over = self.world.run(self._is_over, LIMIT_S)
        assert over, f"the run does not end: {self._standing()}"
        late_s = self.world.now - self._over_at if self._over_at else 0.0
        assert late_s <= MOST_S, f"the run ends {late_s:.1f} s after its last update is saved"
        gone = {one.replica for one in self.workers.values() if one.outcome not in ("finished", "stopped")}
        self.history.stayed = {one.replica for one in self.workers.values()} - gone
        return self.history

    def final(self) -> list[dict[int, Any]]:
        """By server that stayed to the end, its slices."""
        return [server.values for server in self.servers.values() if server.outcome == self.roster.outcome]

    def _server(self, number: int) -> Server:
        copies = self.case.replicas
        kept = {(number - copy) % self.servers_count for copy in range(copies)}
        shards = {one.number: one.shard for one in self.slices if one.shard in kept}
        server = Server(self.network, number, shards, self.disk, self.case.shard, self.case.each)
        self.driver.accept(server.begin(self.driver.process), self.members)
        return server

    @property
    def failure(self) -> str:
        """Why the run cannot go on; empty while it can, and once it need not."""
        needed = not (self.case.model.elastic or self.roster.outcome)
        lost = [] if not needed else [f"rank {each.rank} {each.sentence}" for each in self.watch.lost]
        return self.roster.failure or next(iter(lost), "")

    @property
    def share_done(self) -> float:
        """The share of all samples of all epochs that updates are made of."""
        return self.roster.samples / (self.samples * self.case.epochs)

    def _is_over(self) -> bool:
        """As the driver sees it; what is stopped then is killed."""
        if self.failure or (self.watch.lost and not self.case.model.elastic):
            return True
        late = self.watch.late if self.roster.outcome else ()
        if not self.roster.ended or not self.watch.all_left_but(late):
            return False
        members = (*self.workers.values(), *self.servers.values())
        return all(each.outcome or each.process.paused or not each.process.up for each in members)

    def _standing(self) -> str:
        left = [each.process.name for each in (*self.workers.values(), *self.servers.values()) if not each.outcome]
        return f"after update {self.history.newest} {', '.join(left)} wait for ever; roster: {self.roster.outcome}"
