"""Runs of the queue as processes of this machine: each driver a session of its own, which its runner does not outlive.

A driver inherits a lock that its runner has taken, so that there is no moment in which a run could be started twice.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import msgspec

from volary.errors import RunError, VolaryError
from volary.jobs.entry import GIB, NO_LIMIT, Capacity, MemoryFrom, PastUse, QueueEntry
from volary.jobs.estimates import MemoryEstimates
from volary.jobs.machines.hosts import doubt_host, known_hosts
from volary.jobs.machines.notices import NoticeFolder
from volary.jobs.machines.shares import Notice, beside, notice_of
from volary.jobs.machines.unqueued import cores_outside
from volary.jobs.memory import keep_bytes, known_bytes
from volary.jobs.processes.forked_drivers import DriverForkServer, DriverProcess, Turn
from volary.jobs.runner import How, Moment
from volary.jobs.settings import queue_settings
from volary.jobs.table import QueueTable
from volary.monitor.digest import Follower
from volary.run.control.stopping import ask_to_stop, asked_to_stop
from volary.run.database.journal import Journal
from volary.run.database.reader import RunReader, attempt_in
from volary.run.directory import RunDirectory, is_run
from volary.run.launch.queued import QUEUED_RUN
from volary.run.lock import RunLock, is_held
from volary.run.machine import clock
from volary.run.machine.cores import cores_here, on_cores
from volary.run.machine.gpus import gpus_here, visible
from volary.run.machine.memory import held_bytes, total_bytes
from volary.run.resuming import is_resumable

DRIVER = ["-m", "volary.driver.job"]
LOSSES = ("WorkerLost", "ServerLost", "PeerLost")  # errors that are tried again
ESTIMATE_EACH_S = 10.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def capacity_here() -> Capacity:
    """Return the capacity of this machine, and the GPUs that somebody uses."""
    gpus = gpus_here()
    used = tuple(number for number, computes in gpus.items() if computes)
    return Capacity(tuple(cores_here()), total_bytes() or NO_LIMIT, tuple(gpus), used)


def moment_here() -> Moment:
    """The time since this machine was started, and which start that was."""
    with suppress(OSError):
        return Moment(_BOOT.read_text().strip(), clock.running_s())
    return Moment("", clock.running_s())


class RunMachinery:
    """Starts the runs of a table as its owner would, and looks after them. remarks: what is to be said of settings."""

    def __init__(self, table: QueueTable) -> None:
        self._table = table
        self.remarks: list[str] = []
        self._shares: NoticeFolder | None = None
        try:
            if (folder := queue_settings().share_folder) is not None:
                self._shares = NoticeFolder(folder)
        except VolaryError as error:
            self.remarks.append(str(error))
        self._children: list[subprocess.Popen[bytes]] = []
        self._estimates: dict[str, tuple[float, float | None]] = {}  # by run: when it was made, and the end
        self._memory = MemoryEstimates(table.environment)
        self._drivers: DriverForkServer | None = None

    def close(self) -> None:
        """End what it does beside the runs."""
        self._memory.close()
        self.expect(None)

    def moment(self) -> Moment:
        return moment_here()

    def capacity(self, entries: Sequence[QueueEntry]) -> Capacity:
        found = capacity_here()
        given = [entry.given for entry in entries if entry.given and not entry.given.host]
        gpus = set(found.used_gpus) - {gpu for one in given for gpu in one.gpus}
        cores = cores_outside({entry.run for entry in entries}) - {core for one in given for core in one.cores}
        used_cores = tuple(core for core in found.cores if core in cores)
        hosts = known_hosts(self._table.folder)
        here = Capacity(found.cores, found.memory_bytes, found.gpus, tuple(gpus), used_cores, hosts)
        if self._shares is None:
            return here
        mine = self._notice(self._shares, entries, found)
        return beside(here, mine, self._shares.others(mine.user, mine.boot))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No runner of another user looks meanwhile; then they are told what the runs of this queue have and want."""
        with ExitStack() as stack:
            with self._shared() as shares:
                if shares is not None:
                    stack.enter_context(shares.alone())
            yield
            with self._shared() as shares:
                if shares is not None:
                    shares.say(self._notice(shares, self._table.entries(), capacity_here()))

    @contextmanager
    def _shared(self) -> Iterator[NoticeFolder | None]:
        """The folder; if it cannot be used any more, the queue goes on without it, and that is said."""
        try:
            yield self._shares
        except VolaryError as error:
            self.remarks.append(str(error))
            self._shares = None

    @property
    def is_shared(self) -> bool:
        """Whether runners of other users say what they have, which wakes nobody up."""
        return self._shares is not None

    def notices_seen(self) -> int:
        """Another number once a runner of another user has said something new."""
        return 0 if self._shares is None else self._shares.stamp()

    def _notice(self, shares: NoticeFolder, entries: Sequence[QueueEntry], here: Capacity) -> Notice:
        moment, user = self.moment(), os.getuid()
        new, before = Notice(user, os.getpid(), moment.boot, since_s=moment.now_s), shares.mine(user)
        if before is not None and before.boot == new.boot and before.wants is not None:
            new = msgspec.structs.replace(new, since_s=before.since_s)
        return notice_of(entries, here, new)

    def ends(self, entries: Iterable[QueueEntry]) -> Mapping[str, float]:
        now_s, known = clock.running_s(), self._estimates
        self._estimates = {}
        for entry in entries:
            if entry.state == "running":
                made = known.get(entry.run)
                if made is None or now_s - made[0] > ESTIMATE_EACH_S:
                    made = now_s, expected_end_s(entry)
                self._estimates[entry.run] = made
        return {run: end for run, (_, end) in self._estimates.items() if end is not None}

    def learnt(self, entries: Sequence[QueueEntry]) -> Mapping[str, tuple[int, MemoryFrom]]:
        return self._memory.learnt(entries, total_bytes() or NO_LIMIT)

    def unsaved(self, entries: Iterable[QueueEntry]) -> set[str]:
        return {one.run for one in entries if one.state == "running" and not is_resumable(RunDirectory(one.run))}

    def is_alive(self, entry: QueueEntry) -> bool:
        self._children = [one for one in self._children if one.poll() is None]
        directory = RunDirectory(entry.run)
        return is_held(_lock(directory)) or directory.is_live()

    def exists(self, entry: QueueEntry) -> bool:
        return Path(entry.run).is_dir()

    def attempt(self, entry: QueueEntry) -> int:
        return newest_attempt(RunDirectory(entry.run))

    def expect(self, entry: QueueEntry | None) -> None:
        alike = None if entry is None else self._process(entry)
        if self._drivers is not None and (alike is None or not self._drivers.serves(alike)):
            self._drivers.close()
            self._drivers = None
        if self._drivers is None and alike is not None:
            with suppress(OSError):  # when it is its turn that is said
                self._drivers = DriverForkServer(alike, self._table.runner_log)

    def start(self, entry: QueueEntry) -> int:
        directory, given = RunDirectory(entry.run), entry.given
        assert given is not None
        alike = self._process(entry)
        turn = Turn(
            arguments=(entry.run, *entry.overrides),
            cores=() if given.host else given.cores,
            variables=visible(given.gpus) | {QUEUED_RUN: entry.run},
        )
        try:
            with RunLock(_lock(directory)) as lock, (directory.logs / "job.log").open("ab") as log:
                if (drivers := self._drivers) is not None and drivers.serves(alike):
                    process = drivers.fork(turn, lock.descriptor, log.fileno())
                    if process is not None:
                        return process
                with on_cores(turn.cores or cores_here()):
                    child = subprocess.Popen(
                        [*alike.command, *turn.arguments],
                        cwd=alike.folder,
                        env=alike.variables | turn.variables,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        pass_fds=[lock.descriptor],
                        start_new_session=True,
                    )
        except OSError as error:
            raise VolaryError(f"its driver could not be started: {error.strerror}: {error.filename}") from None
        self._children.append(child)
        return child.pid

    def _process(self, entry: QueueEntry) -> DriverProcess:
        variables = self._table.environment(entry.run) or dict(os.environ)
        return DriverProcess([entry.python, *DRIVER], entry.folder, variables)

    def used_bytes(self, entry: QueueEntry) -> int:
        here = entry.pid and not (entry.given and entry.given.host)  # elsewhere its workers are not seen
        return (held_bytes(entry.pid) or 0) if here else 0

    def keep_used(self, entry: QueueEntry, how: How) -> None:
        directory, used = RunDirectory(entry.run), entry.used_bytes
        self._keep_past(entry)
        if how in ("lost", "not begun") and entry.given is not None and entry.given.host:
            with suppress(OSError):
                doubt_host(self._table.folder, entry.given.host)
        with suppress(OSError, UnicodeDecodeError):  # a folder that has gone, a disk that is full: nothing is lost
            session = directory.session.read_text(encoding="utf-8")
            known = 0 if how == "finished" else known_bytes(session) or 0  # else it may have taken more
            if used > known:
                keep_bytes(session, used)
        if entry.asked_bytes is not None and used > entry.asked_bytes:
            text = f"it took {used / GIB:.2f} GiB of memory, and was to take {entry.asked_bytes / GIB:.2f} at most"
            _tell(directory, lambda journal: journal.event("warning", text=text))

    def _keep_past(self, entry: QueueEntry) -> None:
        if entry.given is None or entry.boot != self.moment().boot:  # else nobody knows when it ended
            return
        began_at, now = clock.at(entry.started_s), clock.now_s()
        noted = float(_info(entry.run).get("ended_at", now))  # a runner may see it later
        ended_at = noted if began_at <= noted <= now else now
        memory_bytes = entry.used_bytes or entry.demand.memory_bytes
        self._table.keep_past(entry, PastUse(entry.run, entry.given, memory_bytes, began_at, ended_at))

    def ask_to_stop(self, entry: QueueEntry) -> None:
        directory = RunDirectory(entry.run)
        with suppress(RunError):  # it has not begun: asked again at the next look
            if asked_to_stop(directory, self.attempt(entry)) is None:
                ask_to_stop(directory)

    def how_ended(self, entry: QueueEntry) -> How:
        info = _info(entry.run)
        attempt, state = attempt_in(info), info.get("state")
        if attempt <= entry.attempt:
            return "failed" if info.get("refused") == str(attempt) else "not begun"
        if state == "failed":
            return "lost" if info.get("error") in LOSSES else "failed"
        if state == "stopped":
            return "terminated" if info.get("terminated") == str(attempt) else "stopped"
        return "finished" if state == "finished" else "lost"

    def unfinished(self, run: str) -> bool | None:
        if not is_run(Path(run)):
            return None
        state, live = _info(run).get("state"), RunDirectory(run).is_live()
        return True if live else False if state == "finished" else None

    def give_up(self, entry: QueueEntry, sentence: str) -> None:
        if _info(entry.run).get("state") in (None, "running"):
            _note(RunDirectory(entry.run), message=sentence, error="VolaryError")


def expected_end_s(entry: QueueEntry) -> float | None:
    """When a run will have done its steps, if it goes on as it does, on the clock of `moment_here`; None: not known."""
    with suppress(VolaryError), closing(Follower(RunDirectory(entry.run))) as follower:
        left_s = follower.look().left_s
        return None if left_s is None else clock.running_s() + left_s
    return None


def newest_attempt(directory: RunDirectory) -> int:
    """The number of the newest attempt at a run; -1 before the first."""
    return attempt_in(_info(str(directory.path)))


def note_refused(directory: RunDirectory, attempt: int, error: VolaryError) -> None:
    """Write into the directory of a run that its driver ended before it began. attempt: the newest before."""
    _note(directory, message=str(error), error=type(error).__name__, exit_code=error.exit_code, refused=attempt)


def _note(directory: RunDirectory, **facts: object) -> None:
    _tell(directory, lambda journal: journal.note(state="failed", ended_at=time.time(), **facts))


def _tell(directory: RunDirectory, write: Callable[[Journal], None]) -> None:
    with suppress(VolaryError), closing(Journal(directory.database)) as journal:  # what cannot be written is left
        journal.continue_attempt()
        write(journal)


def _lock(directory: RunDirectory) -> Path:
    return directory.path / "queue.lock"


def _info(run: str) -> dict[str, str]:
    with suppress(RunError), RunReader(RunDirectory(run)) as reader:
        return reader.info()
    return {}
