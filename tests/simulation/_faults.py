"""What befalls a simulated run, as its seed decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulation._run import Run

LOST_AFTER_S = 1.0  # of silence, after which a driver gives a worker up
FROM_S, TO_S = 0.1, 0.5  # of a run, in which things happen


class Faults:
    """Plans for one run. Each method makes some faults of one kind happen at random times."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._world, self._network = run.world, run.network
        self._random = run.world.random
        self.replicated = run.case.replicas > 1

    def connections_break(self, often: int) -> None:
        """Between workers and servers, once or again."""
        for _ in range(self._random.randrange(often + 1)):
            self._soon(self._snap)

    def partitions(self, often: int) -> None:
        """Between a worker and a server, for a while."""
        for _ in range(self._random.randrange(often + 1)):
            self._soon(self._part)

    def pauses(self, often: int, longest_s: float) -> None:
        """Of workers."""
        for _ in range(self._random.randrange(often + 1)):
            self._soon(self._pause_worker, self._random.uniform(0.01, longest_s))

    def workers_die(self, most: int) -> None:
        """But for the first."""
        for _ in range(self._random.randrange(most + 1)):
            self._soon(self._kill_worker)

    def workers_leave(self, most: int) -> None:
        """But for the first."""
        for _ in range(self._random.randrange(most + 1)):
            self._soon(self._leave)

    def workers_join(self, most: int) -> None:
        """While the run goes on."""
        for _ in range(self._random.randrange(most + 1)):
            self._soon(self._run.join)

    def all_die_but_one_that_is_starting(self) -> None:
        """Sometimes, and from then on that one is who survives."""
        if self._random.random() < 0.3:
            self._soon(self._kill_all_but_one)

    def somebody_stops_it(self) -> None:
        """The run is asked to end."""
        self._soon(self._run.stop)

    def a_server_dies(self) -> None:
        """At any time, by being killed or by being stopped for longer than its silence is borne."""
        server = self._random.choice(list(self._run.servers.values()))
        if self._random.random() < 0.7:
            self._soon(server.process.kill)
        else:
            self._soon(server.process.pause, self._random.uniform(0.1, 4.0))

    def _soon(self, call: object, *arguments: object) -> None:
        self._world.after(self._random.uniform(FROM_S, TO_S), call, *arguments)  # type: ignore[arg-type]

    def _snap(self) -> None:
        ports = [port for worker in self._run.workers.values() for port in worker.ports.values()]
        if ports:
            self._random.choice(ports).snap()

    def _part(self) -> None:
        worker = self._random.choice(list(self._run.workers.values()))
        server = self._random.choice(list(self._run.servers.values()))
        self._network.part(worker.process, server.process, self._random.uniform(0.01, 0.6))
        if worker.ports.get(server.number) and self._random.random() < 0.5:
            worker.ports[server.number].snap()

    def _pause_worker(self, for_s: float) -> None:
        worker = self._random.choice(list(self._run.workers.values()))
        if worker.rank == self._run.survivor:
            for_s = min(for_s, LOST_AFTER_S)
        worker.process.pause(for_s)
        if for_s > LOST_AFTER_S:
            self._world.after(LOST_AFTER_S, self._run.lose, worker.rank, "silent")

    def _kill_worker(self) -> None:
        rank = self._random.choice(list(self._run.workers))
        if rank != self._run.survivor:
            self._run.workers[rank].process.kill()
            self._world.after(self._world.about(0.2), self._run.lose, rank, "died")

    def _kill_all_but_one(self) -> None:
        before, survivor = list(self._run.workers), self._run.join()
        if survivor is not None:
            self._run.survivor = survivor
            for rank in before:
                self._run.workers[rank].process.kill()
                self._world.after(self._world.about(0.2), self._run.lose, rank, "died")

    def _leave(self) -> None:
        rank = self._random.choice(list(self._run.workers))
        if rank != self._run.survivor:
            self._run.workers[rank].leave()
