"""The driver's loop: hold the run, serve its meeting point, look until it is over, and leave nothing behind."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from volary.comm.control.sealing import Security
from volary.driver.attempt.record import AttemptRecord
from volary.driver.attempt.services import AttemptServices
from volary.driver.ending import Ending
from volary.driver.interrupts import Interrupts
from volary.driver.orphans import seen_out
from volary.driver.replacing.standing_by import standing_by
from volary.driver.server_group import NoServers, ServerGroup
from volary.driver.servers.storage import Storage
from volary.driver.watching.cpu_use import CpuUse
from volary.driver.watching.failure_detector import WAITING, FailureDetector, Rules
from volary.driver.watching.judge import exit_words, judge, read_verdicts
from volary.driver.watching.run_folder import RunFolder
from volary.engine._base import Ended, Exited, Handle
from volary.errors import Stopped, VolaryError
from volary.run.control.stopping import How, asked_to_stop
from volary.run.control.watcher import Watcher
from volary.run.database.journal import Journal
from volary.run.directory import RunDirectory
from volary.run.launch.meeting import Meeting, announce, forget
from volary.run.lock import RunLock
from volary.run.machine import clock
from volary.run.verdict import Verdict
from volary.session.changing import SettingChange

LOOK_S = 0.1
SHOW_S = 0.25
LINGER_S = 1.0  # after bad news: how long those may take to say what they saw who may have something to add
LEAVE_S = 10.0  # after all goodbyes: how long processes may take to end
FOLLOW_S = 5.0  # after a launcher's end: how long until its workers' ends are seen, of which the first is to be named
_ASKS: dict[How | None, int] = {None: 0, "after this step": 1, "now": 2}  # as many times as Ctrl-C would be pressed

Launcher = Callable[[Meeting], Handle]


class Drive:
    """One attempt at a run, whose lock is held; by rules that replace a lost driver's it is taken from that one.

    host: where it listens. security: what is encrypted there.
    """

    def __init__(
        self,
        directory: RunDirectory,
        lock: RunLock,
        world_size: int,
        rules: Rules,
        watcher: Watcher,
        storage: Storage,
        host: str = "127.0.0.1",
        security: Security = "encrypted",
    ) -> None:
        self._directory, self._world_size, self._watcher, self._host = directory, world_size, watcher, host
        self._lock, self._storage, self._security = lock, storage, security
        self._keepers: ServerGroup = NoServers()
        self._watch = FailureDetector(world_size, rules, time.monotonic())
        self._exits: list[Exited] = []
        self._launcher: Ended | None = None
        self._interrupts = Interrupts()
        self._taken_away = False
        self._cpu_use = CpuUse()

    def run(self, launcher: Launcher, warnings: Sequence[str] = (), changes: Sequence[SettingChange] = ()) -> Ending:
        """Drive the run to its end. launcher: starts the workers, once the meeting point stands.

        warnings, and changes of its settings since its last attempt: to record.

        Raises what `judge` raises, and Stopped if the user would not wait for the step.
        """
        clock.set_by_machine()
        with self._interrupts:
            return self._run(launcher, warnings, changes)

    def _run(self, launcher: Launcher, warnings: Sequence[str], changes: Sequence[SettingChange]) -> Ending:
        record = AttemptRecord(self._directory)
        try:
            rules = self._watch.rules
            if rules.replaces is None:
                record.begin(self._world_size - rules.spares, self._storage.contributions(), warnings, changes)
            else:
                record.take_over(rules.replaces)
                self._lock.take_over()
            try:
                ending = self._serve(record.journal, launcher)
                if ending.state == "thawed" and self.asked_to_end:
                    ending = replace(ending, state="stopped")
            except BaseException as error:
                record.failed(error, self._reached)
                raise
            record.ended(ending)
            return ending
        finally:
            record.close()
            if not record.goes_on:
                self._watcher.ended(record.state, record.step)

    def _serve(self, journal: Journal, launcher: Launcher) -> Ending:
        self._keepers = keepers = self._storage.servers(journal)
        services = AttemptServices(
            self._directory,
            self._watch,
            keepers,
            journal,
            self._storage.counts,
            self._why_closed,
            self._host,
            self._security,
        )
        meeting = services.start()
        try:
            if keepers.elastic:
                announce(self._directory, meeting)  # to those who join
            keepers.start(meeting)
            handle = launcher(meeting)
            try:
                self._watch.placed(handle.hosts())
                self._watcher.started(self._directory)
                with (
                    standing_by(self._directory, self._lock, wanted=self._watch.rules.standby),
                    seen_out(self._directory, self._lock, self._watch.rules.wait_for_driver_s) as see_out,
                    RunFolder(self._directory, self._lock, journal) as folder,
                ):
                    self._look_until_over(services, handle, journal, see_out, folder)
                    worker_first = self._gave_up_a_worker()
                    self._part(handle)
                    self._note_taken_away(journal)
                    folder.look()
                services.end(self._bad_news() or "the run is over")
            finally:
                if not self._lock.is_taken_over:
                    handle.stop(0.0)
        finally:
            keepers.stop()
            if not self._lock.is_taken_over:
                forget(self._directory)  # before nothing listens there: that is how a lost driver is known
            services.stop()
        verdicts = read_verdicts(self._directory, self._watch, journal.attempt)
        return judge(
            self._directory,
            self._watch,
            self._exits,
            verdicts,
            keepers,
            launcher=self._launcher,
            worker_first=worker_first,
        )

    @property
    def asked_to_end(self) -> bool:
        """Whether the user has asked for the end of the run."""
        return self._interrupts.count > 0

    @property
    def workers_here(self) -> dict[int, int]:
        """The processes of workers on this machine, whoever has started them, by rank."""
        host = socket.gethostname()
        return {one.rank: one.pid for one in self._watch.workers.values() if one.pid and one.host == host}

    def _gave_up_a_worker(self) -> bool:
        """Whether the run ends now because a worker was given up, and not because of a server that had gone before."""
        gone = self._keepers.elastic or self._keepers.failure
        return not gone and any(lost.kind != "died" for lost in self._watch.lost)

    def _reached(self) -> int:
        """The newest step that a worker has reported."""
        return self._keepers.steps(max((worker.step for worker in self._watch.workers.values()), default=0))

    def _why_closed(self) -> str:
        if not self._keepers.elastic:
            return "its workers are fixed: the consistency model needs each of them"
        return "it is ending" if self._interrupts.count or self._keepers.outcome else ""

    def _look_until_over(
        self,
        services: AttemptServices,
        handle: Handle,
        journal: Journal,
        see_out: Callable[[Iterable[int]], None],
        folder: RunFolder,
    ) -> None:
        shown, asked = 0.0, False
        while not self._is_replaced(journal) and not self._is_over(services, handle):
            see_out(handle.children())
            self._note_taken_away(journal)
            self._interrupts.at_least(_ASKS[asked_to_stop(self._directory, journal.attempt)])
            if self._interrupts.count and not any(worker.stepped for worker in self._watch.workers.values()):
                raise Stopped("stopped before the first step")  # nothing of this attempt could be saved
            if self._interrupts.count > 1:
                raise Stopped("stopped at once")
            if self._interrupts.count and not asked:
                asked, shown = True, 0.0
                journal.event("stopping")
                services.finish()
            services.pass_on_requests(self._reached)
            if time.monotonic() - shown > SHOW_S:
                folder.look()
                self._watcher.look()
                shown = time.monotonic()
            self._observe(services, handle)
            self._interrupts.wait(LOOK_S)

    def _is_replaced(self, journal: Journal) -> bool:
        """False. Raises VolaryError if another driver has the run by now, as this one was stopped or cut off."""
        if journal.replaced or self._lock.is_taken_over:
            raise VolaryError(
                "another process drives this run by now, or has resumed it: this one writes no more and has ended"
            )
        return False

    def _note_taken_away(self, journal: Journal) -> None:
        """Note once that the run ends as this machine, or a worker's, is taken away: a queue resumes it then."""
        taken_away = not self._interrupts.count and any(worker.taken_away for worker in self._watch.workers.values())
        if (taken_away or self._interrupts.terminated) and not self._taken_away:
            self._taken_away = True
            journal.note(terminated=journal.attempt)

    def _is_over(self, services: AttemptServices, handle: Handle) -> bool:
        """Whether there is bad news, or everybody has left."""
        self._keepers.look()
        # exits of earlier looks: by now the goodbye that a worker sent before has come
        workers, launcher = self._watch.workers, self._launcher
        fled = {gone.rank: exit_words(gone) for gone in self._exits if not workers[gone.rank].goodbye}
        if launcher is not None:
            with_it = range(self._world_size) if launcher.numbers is None else launcher.numbers
            fled |= {rank: f"ended with {launcher.launcher}" for rank in with_it if not workers[rank].goodbye}
        self._exits += handle.events()
        self._launcher = handle.ended()
        if self._keepers.elastic and fled:
            services.fell(fled)
        for rank in self._watch.given_up if self._keepers.elastic else ():
            handle.kill(rank)  # or the end of the run would wait for it
        return bool(fled and not self._keepers.elastic) or self._everyone_left() or bool(self._bad_news())

    def _too_late(self) -> set[int]:
        """Workers that were let in, and will not have begun when the run has ended: nobody waits for them."""
        if self._keepers.lock_step:
            return self._watch.late.intersection(self._watch.unneeded)
        return self._watch.late if self._keepers.outcome else set()

    def _everyone_left(self) -> bool:
        return self._watch.all_left_but(self._too_late())

    def _observe(self, services: AttemptServices, handle: Handle) -> None:
        """Look what the processes of workers do that do not beat: one that works is not stopped."""
        if not (quiet := self._watch.quiet):
            return
        ended = {gone.rank for gone in self._exits}
        pids = {rank: pid for rank, pid in handle.pids().items() if rank in quiet - ended}
        working = self._cpu_use.working(pids)
        services.observed(pids.keys(), working)

    def _bad_news(self) -> str:
        """The first reason, if there is any, for which the run cannot go on."""
        if failure := self._keepers.failure:
            return failure
        for lost in [] if self._keepers.elastic else self._watch.lost:
            return f"rank {lost.rank} {lost.sentence}"
        goodbyes = [worker.goodbye for worker in self._watch.workers.values() if worker.goodbye]
        return next((f"rank {bye.rank}: {bye.reason}" for bye in goodbyes if self._is_bad(bye)), "")

    def _is_bad(self, goodbye: Verdict) -> bool:
        broken = goodbye.outcome == "peer_lost" and not self._keepers.elastic
        return broken or self._watch.is_cause(goodbye)

    def _part(self, handle: Handle) -> None:
        """Give those who are left the time to say what they saw, or, where all went well, to end."""
        well = self._everyone_left() and not self._bad_news()
        deadline = time.monotonic() + (LEAVE_S if well else FOLLOW_S if self._has_failed_launcher else LINGER_S)
        while (self._is_awaited(handle, well) or self._keepers.ending) and time.monotonic() < deadline:
            self._interrupts.wait(LOOK_S)
            self._exits += handle.events()
            self._keepers.look()
        self._launcher = handle.ended()
        self._watch.conclude()

    @property
    def _has_failed_launcher(self) -> bool:
        """Whether the workers' launcher has ended by itself, without a signal: as a rule after one of them."""
        return self._launcher is not None and self._launcher.signal is None

    def _is_awaited(self, handle: Handle, well: bool) -> bool:
        """Whether a worker may still say what is not known, or its process has yet to end: well, or to be seen so."""
        lost = {one.rank for one in self._watch.lost}
        ending = handle.running()
        workers = self._watch.workers.values()
        known = lost | {gone.rank for gone in self._exits} | {worker.rank for worker in workers if worker.away}
        fallen = any(not self._watch.workers[rank].goodbye for rank in known)
        for worker in workers:
            if worker.rank in self._too_late():
                continue
            if worker.here:
                # one that waits for who has fallen has seen nothing that is not known
                if worker.rank not in lost and not (fallen and worker.phase in WAITING):
                    return True
            elif worker.rank in ending - lost and (worker.away or (well and worker.pid)):
                return True
        return False
