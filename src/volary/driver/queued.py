"""A run that is a job of a cluster's queue: submitted, followed from any terminal, and cancelled with the run.

The job runs the driver (driver/job.py), so that nothing of the run needs the terminal that it was begun in. Whoever
follows it reads the run's directory, and asks the queue only for what is not there: whether the job still waits, or
has ended without a word.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from volary import errors
from volary.driver.ending import Ending
from volary.driver.interrupts import Interrupts
from volary.driver.servers.settings import servers_to_start
from volary.driver.watching.judge import noted, with_log
from volary.engine import ROOM
from volary.engine.launchers.queue import BatchJob, JobQueue, JobState, Queue
from volary.errors import BadInput, ProgramEnded, RunError, Stopped, VolaryError, WorkerFailed, WorkerLost
from volary.jobs.machines.clusters import note_submitted
from volary.jobs.queue import LocalQueue
from volary.monitor.watching import ending
from volary.run.control.stopping import ask_to_stop
from volary.run.control.watcher import Watcher
from volary.run.database.reader import RunReader, attempt_in
from volary.run.directory import RunDirectory, discard
from volary.run.disk import Disk, replace_file
from volary.run.launch.queued import LOCAL, QueuedJob, job_of, note_job
from volary.run.owner import require_private
from volary.session.spec import Strategy

JOB = [sys.executable, "-m", "volary.driver.job"]
LOOK_S = 0.25
QUEUE_LOOK_S = 2.0  # a controller has many to answer
QUEUE_SILENT_S = 300.0  # one that is started anew takes minutes
_LEAVES_WITHIN_S = 10.0  # a run that has just ended, and which its queue has not looked at since
_ASK_AGAIN_S = 1.0  # a driver that is starting forgets what the attempt before it was asked


def queue_of(engine: object) -> Queue | None:
    """The queue that a run of this engine, begun here, is submitted to; None if it starts at once."""
    return engine if isinstance(engine, Queue) and engine.queues() else None


def batch_of(directory: RunDirectory, strategy: Strategy, arguments: Sequence[str] = ()) -> BatchJob:
    """The job that a run is. arguments: changes of its settings."""
    return BatchJob(
        directory=directory,
        command=[*JOB, str(directory.path), *arguments],
        workers=strategy.workers,
        servers=servers_to_start(strategy),
        folder=Path.cwd(),
    )


def submit(directory: RunDirectory, queue: Queue, strategy: Strategy, arguments: Sequence[str] = ()) -> None:
    """Hand the run to the queue. Raises BadInput if it is there already, or is not taken."""
    text = queue.batch_file(batch_of(directory, strategy, arguments))
    replace_file(Disk(), directory.batch, text.encode(), mode=0o700)
    number = queue.submit(directory.batch)
    note_job(directory, QueuedJob(type(queue).__module__.rpartition(".")[2], number, _attempt(directory)))
    note_submitted(directory)


def leave_queue(directory: RunDirectory) -> None:
    """Forget the job that the run was, unless this process is part of it. Raises RunError if it has not ended."""
    job = job_of(directory)
    if job is None or (queue := _queue(job)).is_inside(job.number):
        return
    until = time.monotonic() + _LEAVES_WITHIN_S
    while (state := queue.look(job.number)) is not None and not state.over:
        if state.waiting or directory.is_live() or time.monotonic() > until:
            how = f"follow it: volary attach {directory.argument}"
            raise RunError(f"{directory.path} is {job} ({state.words}); {how}")
        time.sleep(LOOK_S)
    Disk().remove(directory.job)


def follow(directory: RunDirectory, watcher: Watcher) -> Ending:
    """Show a run to its end, wherever its driver is, and pass on what this terminal asks. Returns, raises as that does.

    Ctrl-C asks it to end after its step, twice at once; a job that still waits is cancelled. A terminal that is closed
    asks nothing.
    """
    job = job_of(directory)
    terminal = _Terminal(directory, job)
    state, step = None, None
    try:
        with Interrupts(hang_up=False) as interrupts:
            watcher.started(directory)
            while not terminal.is_over():
                terminal.ask(interrupts.count)
                watcher.look()
                interrupts.wait(LOOK_S)
        found = _conclude(directory, job, terminal)
        state, step = found.state, found.step
        return found
    finally:
        watcher.ended(state, step)


class _Terminal:
    """A terminal that watches a run elsewhere, and asks it to end."""

    def __init__(self, directory: RunDirectory, job: QueuedJob | None) -> None:
        self.asked = False
        self.state: JobState | None = None
        self._directory, self._job = directory, job
        self._looked_at = self._asked_at = float("-inf")
        self._answered_at = time.monotonic()

    def is_over(self) -> bool:
        """Whether nothing more can come: nobody drives it, and no job of it waits, or is about to."""
        if self._directory.is_live():
            return False
        if self._job is None or (self.has_begun and _state(self._directory) in ("finished", "failed")):
            return True
        if time.monotonic() - self._looked_at > QUEUE_LOOK_S:
            self._look(_queue(self._job), self._job)
        return self.state is not None and self.state.over and not self._directory.is_live()

    def _look(self, queue: JobQueue, job: QueuedJob) -> None:
        state = queue.look(job.number)
        self._looked_at = time.monotonic()
        if state is not None:
            self.state, self._answered_at = state, self._looked_at
        elif (silent_s := self._looked_at - self._answered_at) > QUEUE_SILENT_S:
            how = f"the run may go on; follow it: volary attach {self._directory.argument}"
            raise VolaryError(f"the queue of {job.engine} has not answered for {silent_s:.0f} s; {how}")

    @property
    def has_begun(self) -> bool:
        """Whether the job has come to drive the run."""
        return self._job is None or _attempt(self._directory) > self._job.attempt

    def ask(self, times: int) -> None:
        """Pass on that the user has asked so many times for the end."""
        if not times or time.monotonic() - self._asked_at < _ASK_AGAIN_S:
            return
        self._asked_at, self.asked = time.monotonic(), True
        ask_to_end(self._directory, times)


def ask_to_end(directory: RunDirectory, times: int = 1) -> None:
    """Ask a run to end, wherever it is, for the first or a later time: the first lets it finish its step and save."""
    job = job_of(directory)
    with suppress(RunError):  # not driven yet, or any more; it has left the queue
        if job is not None and (times > 2 or not directory.is_live()):  # it waits, for the first time or again
            _queue(job).cancel(job.number, if_waiting=times <= 2)
        ask_to_stop(directory, "now" if times > 1 else "after this step")


def is_over(directory: RunDirectory) -> bool:
    """Whether nobody drives the run, and no queue has it."""
    if directory.is_live():
        return False
    job = job_of(directory)
    return job is None or ((state := _queue(job).look(job.number)) is not None and state.over)


def withdraw(directory: RunDirectory) -> bool:
    """Whether the run was a job that waited, and has been cancelled. Raises RunError if that takes long."""
    job = job_of(directory)
    if job is None or directory.is_live():
        return False
    require_private(directory.job)  # it names whom the user's token is sent to
    queue = _queue(job)
    if _attempt(directory) > job.attempt and not ((seen := queue.look(job.number)) and seen.waiting):
        return False
    queue.cancel(job.number, if_waiting=True)
    state = queue.look(job.number)
    if state is not None and state.waiting:
        raise RunError(f"{job} was told to end, and is still in its queue: {state.words}; look again: volary queue")
    return state is not None and state.over


def cancel(directory: RunDirectory) -> None:
    """Take a run out of the queue that it is in; one that runs is stopped after its step. Raises RunError if it is in
    none.
    """
    job = job_of(directory)
    if job is None or job.engine == LOCAL:
        LocalQueue().cancel(str(directory.path))
    elif not withdraw(directory):
        ask_to_stop(directory)


def wait_until_out(directory: RunDirectory) -> None:
    """Wait until the queue has seen that the run has ended, or for as long as that takes it at most."""
    until = time.monotonic() + _LEAVES_WITHIN_S
    while not is_over(directory) and time.monotonic() < until:
        time.sleep(LOOK_S)


def _conclude(directory: RunDirectory, job: QueuedJob | None, terminal: _Terminal) -> Ending:
    words, log = terminal.state.words if terminal.state else "", directory.logs / "job.log"
    if job is not None and not terminal.has_begun:
        if terminal.asked:
            if job.attempt < 0:
                discard(Disk(), directory.path)  # the name stays free for the next try
            raise Stopped(f"stopped before the run began: {job} was cancelled")
        raise with_log(
            VolaryError(f"{job} ended before the run began: {words}"), directory.logs / "job.log", "job's log"
        )
    seen = ending(directory)
    if seen.state in ("finished", "stopped") and not seen.error:
        return Ending(directory, "finished" if seen.state == "finished" else "stopped", seen.step, seen.message)
    kind = getattr(errors, seen.error, None)
    if seen.state == "lost" or not (isinstance(kind, type) and issubclass(kind, VolaryError)):
        subject = f"{job} ended ({words}), and its driver" if job and words else "the driver is gone: it"
        lost = WorkerLost(f"{subject} left no word; last step {seen.step}")
        raise noted(lost, directory, log, "job's log")
    if issubclass(kind, BadInput | Stopped):
        raise (Stopped if kind is Stopped else BadInput)(seen.message)
    if kind is ProgramEnded:
        raise ProgramEnded(seen.message, seen.exit_code, begun=True)
    failed = issubclass(kind, WorkerFailed)
    raise noted((WorkerFailed if failed else kind)(seen.message), directory, fixed_first=failed)


def _queue(job: QueuedJob) -> JobQueue:
    if job.engine == LOCAL:
        return LocalQueue()
    queue = ROOM.load(job.engine)()
    assert isinstance(queue, Queue)
    return queue


def _attempt(directory: RunDirectory) -> int:
    with RunReader(directory) as reader:
        return attempt_in(reader.info())


def _state(directory: RunDirectory) -> str:
    with RunReader(directory) as reader:
        return reader.state()
