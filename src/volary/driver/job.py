"""The driver of a run that is a job of a queue: `python -m volary.driver.job RUN [ARGUMENTS]`, as in the batch file.

ARGUMENTS: changes of the run's settings. A job that the queue starts again continues from the newest checkpoint.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from volary.driver.ending import Ending, NoWatcher
from volary.driver.resume import resume
from volary.driver.start import drive
from volary.driver.tasks.checks import check
from volary.driver.tasks.task import task_of
from volary.engine.launchers.queue import Queue
from volary.errors import Stopped, VolaryError, WorkerLost
from volary.jobs.machinery import newest_attempt, note_refused
from volary.jobs.processes.forked_drivers import wait_for_turn
from volary.run.directory import RunDirectory
from volary.run.launch.launched import is_terminated
from volary.run.launch.queued import QUEUED_RUN, job_of
from volary.session.script import Script


def main() -> int:
    """Drive the run, once it is its turn; returns the exit code."""
    wait_for_turn()
    try:
        directory = RunDirectory.existing(sys.argv.pop(1))
        os.environ.setdefault(QUEUED_RUN, str(directory.path))  # a cluster's queue has started it: it waits in no other
        with _noted_if_refused(directory):
            ending = _driven(directory)
    except VolaryError as error:
        print(error.report, file=sys.stderr, flush=True)
        return error.exit_code
    _queue_again(directory)
    print(f"{ending.state} after step {ending.step}: {ending.directory.path}", file=sys.stderr, flush=True)
    return Stopped.exit_code if ending.state == "stopped" else 0


@contextmanager
def _noted_if_refused(directory: RunDirectory) -> Iterator[None]:
    """An error before the run begins is in its directory, too: nobody may be there to see how this process ends.

    Not that its machine is lost: the queue tries that again.
    """
    before = newest_attempt(directory)
    try:
        yield
    except VolaryError as error:
        lost = isinstance(error, WorkerLost)
        if newest_attempt(directory) == before and not lost and not directory.is_live():
            note_refused(directory, before, error)
        raise


def _queue_again(directory: RunDirectory) -> None:
    """A run that has ended as its machines are taken away waits for others in the queue of its cluster."""
    job, engine = job_of(directory), task_of(directory).engine
    if job is not None and isinstance(engine, Queue) and engine.is_inside(job.number) and is_terminated(directory):
        engine.requeue(job.number)


def _driven(directory: RunDirectory) -> Ending:
    overrides, task = sys.argv[1:], task_of(directory)
    if overrides or not isinstance(task, Script):
        return resume(directory, NoWatcher(), overrides)
    with directory.lock() as lock:
        return drive(directory, lock, task, NoWatcher(), check(task))


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # at once: others wait for its cores, and all that it has started ends with it
