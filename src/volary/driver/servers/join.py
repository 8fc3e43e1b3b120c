"""More workers for a run that is under way: they take its current parameters and start."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from volary.comm.control.connection import Connection
from volary.comm.control.errors import ConnectionLost, KeyRefused, OtherAttempt
from volary.driver.interrupts import Interrupts
from volary.driver.servers.settings import is_elastic
from volary.driver.start import WORKER, launch_of_workers
from volary.driver.tasks.task import Task, task_of
from volary.driver.watching.judge import error_of, exit_words, with_log
from volary.engine._base import Engine, Exited, Handle
from volary.errors import BadInput, RunError, Stopped, WorkerLost
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.run.launch.meeting import Meeting, found
from volary.run.verdict import ENDED_WELL, read_verdict
from volary.session.spec import Strategy

ANSWER_TIMEOUT_S = 10.0
ENDING_S = 10.0  # a worker that has lost its run: how long it takes until that has written how it ended
OVER_S = 30.0  # the same once the run has ended, before workers that are stopped are killed
LOOK_S = 0.1


def join(directory: RunDirectory, workers: int, overrides: Sequence[str] = ()) -> tuple[list[int], bool]:
    """Have `workers` more workers of the run started, and wait until they have ended; their ranks, and whether it has.

    overrides: which engine starts them, as `engine=NAME` and its settings; without one it is `local`.

    Ctrl-C lets them leave, and the run continues; twice ends them at once. Raises RunError if nobody can join the run,
    and WorkerFailed or WorkerLost if one of them did not end well.
    """
    task = task_of(directory)
    require_joinable(directory, task.strategy)
    engine = _engine(directory, type(task), workers, overrides)
    engine.prepare(task.strategy.workers + workers)
    meeting = found(directory)
    ranks = _places(directory, meeting, workers)
    launch = launch_of_workers(directory, task, meeting)
    handle = engine.launch(replace(launch, command=WORKER, count=workers, first=ranks[0]))
    try:
        exits, asked = wait(handle, _Over(directory))
    finally:
        handle.stop(0.0)
    return ranks, _conclude(directory, meeting.attempt, ranks, exits, asked=asked)


def _engine(directory: RunDirectory, kind: type[Task], workers: int, overrides: Sequence[str]) -> Engine:
    """The engine that starts them. Raises BadInput if it cannot, or if another setting of the run is to be changed."""
    for override in overrides:
        if not override.startswith(("engine=", "engine.")):
            raise BadInput(
                f"{override}: workers that join a run have its settings; accepted: engine=NAME and settings of it"
            )
    named = any(override.startswith("engine=") for override in overrides)
    engine: Engine = kind.read(directory.session, [*([] if named else ["engine=local"]), *overrides]).engine
    if (reason := engine.check(workers)) is not None:
        raise BadInput(f"engine: {reason}")
    return engine


def require_joinable(directory: RunDirectory, strategy: Strategy) -> None:
    """Raise RunError if nobody can join the run."""
    with RunReader(directory) as reader:
        if reader.info().get("state") == "finished":
            raise RunError(f"{directory.path} is finished; there is nothing to join")
    if strategy.recover == "memory":
        return
    if not is_elastic(strategy):
        raise RunError(
            f"{directory.path} trains with workers that are fixed; accepted: a run with strategy.recover=memory, or "
            "with strategy.exchange=server and strategy.consistency=backup, ssp or async"
        )
    if strategy.ranks_each > 1:
        raise RunError(
            f"{directory.path} trains with replicas that {strategy.ranks_each} workers each hold together, and none of "
            "these can join; accepted: a run with strategy.partition=data"
        )


def _places(directory: RunDirectory, meeting: Meeting, workers: int) -> list[int]:
    """Ask the run's server for places for so many workers; their ranks."""
    hello = {"workers": workers, "host": socket.gethostname()}
    try:
        with Connection.open(
            meeting.host, meeting.port, directory.key(), "door", hello, meeting.attempt_id, ANSWER_TIMEOUT_S
        ) as connection:
            answer = connection.receive(ANSWER_TIMEOUT_S)
    except (ConnectionLost, KeyRefused, OtherAttempt, TimeoutError) as error:
        raise RunError(f"{directory.path}: its server at {meeting.address} does not answer: {error}") from None
    if "refused" in answer:
        raise RunError(f"{directory.path} cannot be joined: {answer['refused']}")
    return list(answer["ranks"])


class _Over:
    """Whether a run has been over for so long that nobody waits any more for workers that have joined it."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory, self._live_at = directory, time.monotonic()

    def __call__(self) -> bool:
        self._live_at = time.monotonic() if self._directory.is_live() else self._live_at
        return time.monotonic() - self._live_at >= OVER_S


def wait(handle: Handle, over: Callable[[], bool] = lambda: False) -> tuple[dict[int, Exited], bool]:
    """Wait until all have ended; return how, by rank, if that is seen, and whether they were asked to.

    Ctrl-C asks them to leave. over: whether nobody waits for them any more. Raises Stopped after a second Ctrl-C.
    """
    exits: dict[int, Exited] = {}
    leaving = False
    with Interrupts() as asked:
        while handle.running() and not over():
            if asked.count > 1:
                raise Stopped("stopped at once; the run goes on without these workers")
            if asked.count and not leaving:
                leaving = True
                handle.ask_to_end()
            exits |= {gone.rank: gone for gone in handle.events()}
            asked.wait(LOOK_S)
    return exits, leaving


def _conclude(
    directory: RunDirectory, attempt: int, ranks: Sequence[int], exits: Mapping[int, Exited], *, asked: bool
) -> bool:
    """Whether the run has ended. Raises what became of the first of them that did not end well, if there is one."""
    ended = False
    for rank in ranks:
        gone = exits.get(rank)
        verdict, log = read_verdict(directory.verdicts, rank, attempt), directory.log(rank)
        if (gone is not None and gone.signal == signal.SIGTERM) or (asked and gone is None and verdict is None):
            continue  # asked to leave before it had begun
        if (verdict is None or verdict.outcome == "peer_lost") and _ended_well(directory):
            ended = True  # before this worker had begun
            continue
        if verdict is None:
            words = exit_words(gone) if gone is not None else "ended without reporting a reason"
            raise with_log(WorkerLost(f"rank {rank} {words}"), log)
        if verdict.outcome == "peer_lost":
            raise with_log(WorkerLost(f"rank {rank}: {verdict.reason}"), log)
        if verdict.outcome not in ENDED_WELL:
            raise with_log(error_of(verdict), log)
        ended = ended or verdict.outcome != "left"
    return ended


def _ended_well(directory: RunDirectory) -> bool:
    """Whether the run has ended as it should, and did not wait for a worker that was still starting."""
    deadline = time.monotonic() + ENDING_S
    while directory.is_live() and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    with RunReader(directory) as reader:
        return not directory.is_live() and reader.info().get("state") in ("finished", "stopped")
