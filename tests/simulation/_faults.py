"""Faults of a simulated run, as its seed decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulation._run import Run

BORNE_S = 1.0  # of a pause, after which a worker is surely not given up
FROM_S, TO_S = 0.1, 0.5  # of a run, in which things happen
LOOK_S = 0.02
EVER = float("inf")


class Faults:
    """Plans for one run. Each method makes some faults of one kind happen at random times."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._world, self._network = run.world, run.network
        self._random = run.world.random
        self.stopped = ""  # who never goes on
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
        """Let workers pause."""
        for _ in range(self._random.randrange(often + 1)):
            self._soon(self._pause_worker, self._random.uniform(0.01, longest_s))

    def pauses_at_the_end(self, often: int, *for_s: float) -> None:
        """Let workers pause, each for one of these times, when little is left to do or the run is over."""
        for _ in range(self._random.randrange(often + 1)):
            self._at_the_end(self._pause_worker, self._random.choice(for_s))

    def somebody_stops_for_ever(self) -> None:
        """At the end: a server, or a worker if it is not the only one."""
        self._at_the_end(self._stop_somebody)

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
        """At any time, by being killed or by being stopped for longer than its silence is borne.

        Not before all are here: a run that has not begun ends with it, and says so.
        """
        server = self._random.choice(list(self._run.servers.values()))
        if self._random.random() < 0.7:
            self._soon(self._once_all_are_here, server.process.kill)
        else:
            self._soon(self._once_all_are_here, server.process.pause, self._random.uniform(0.1, 4.0))

    def _soon(self, call: Callable[..., None], *arguments: object) -> None:
        self._world.after(self._random.uniform(FROM_S, TO_S), call, *arguments)

    def _once_all_are_here(self, call: Callable[..., None], *arguments: object) -> None:
        if self._run.roster.awaited:
            self._world.after(LOOK_S, self._once_all_are_here, call, *arguments)
        else:
            call(*arguments)

    def _at_the_end(self, call: Callable[..., None], *arguments: object) -> None:
        share = self._random.choice((self._random.uniform(0.6, 1.0), 1.0))
        self._once_done(share, call, *arguments)

    def _once_done(self, share: float, call: Callable[..., None], *arguments: object) -> None:
        """Once that share of all samples is learnt from, or a moment later."""
        if self._run.share_done < share:
            self._world.after(LOOK_S, self._once_done, share, call, *arguments)
        else:
            self._world.after(self._world.about(LOOK_S), call, *arguments)

    def _stop_somebody(self) -> None:
        workers = list(self._run.workers.values())
        member = self._random.choice([*self._run.servers.values(), *(workers if len(workers) > 1 else ())])
        self.stopped = member.process.name
        member.process.pause(EVER)

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
        worker.process.pause(min(for_s, BORNE_S) if worker.replica == self._run.survivor else for_s)

    def _kill_worker(self) -> None:
        worker = self._random.choice(list(self._run.workers.values()))
        if worker.replica != self._run.survivor:
            self._run.kill(worker.rank)

    def _kill_all_but_one(self) -> None:
        before, survivor = list(self._run.workers), self._run.join()
        if survivor is not None:
            self._run.survivor = survivor
            for rank in before:
                self._run.kill(rank)

    def _leave(self) -> None:
        worker = self._random.choice(list(self._run.workers.values()))
        if worker.replica != self._run.survivor:
            worker.leave()
