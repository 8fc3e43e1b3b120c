"""More workers for a run that is under way, from this machine: they take its current parameters and start."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence

from volary.comm.errors import ConnectionLost, KeyRefused, OtherLife
from volary.comm.wire import Connection
from volary.driver.interrupts import Interrupts
from volary.driver.judge import error_of, exit_words, with_log
from volary.driver.served import is_elastic
from volary.driver.start import SESSION_JOB, WORKER, session_of
from volary.engine._base import Exited, Launch
from volary.engine._processes import Processes
from volary.engine.local import Local
from volary.errors import RunError, Stopped, WorkerLost
from volary.run.directory import RunDirectory
from volary.run.meeting import Meeting, found
from volary.run.reader import RunReader
from volary.run.verdict import ENDED_WELL, read_verdict
from volary.session.spec import Strategy

ANSWER_TIMEOUT_S = 10.0
ENDING_S = 10.0  # a worker that has lost its run: how long it takes until that has written how it ended
LOOK_S = 0.1


def join(directory: RunDirectory, workers: int) -> tuple[list[int], bool]:
    """Be the parent of `workers` more workers of the run until they have ended; their ranks, and whether it has, too.

    Ctrl-C lets them leave, and the run goes on; twice ends them at once. Raises RunError if nobody can join the run,
    and WorkerFailed or WorkerLost if one of them did not end well.
    """
    session = session_of(directory)
    _refuse(directory, session.strategy)
    meeting = found(directory)
    ranks = _places(directory, meeting, workers)
    launch = Launch(
        directory, WORKER, SESSION_JOB, workers, meeting.address, meeting.server_life, meeting.life, ranks[0]
    )
    processes = Local().launch(launch)
    try:
        exits = _wait(processes, workers)
    finally:
        processes.stop(0.0)
    return ranks, _conclude(directory, meeting.life, exits)


def _refuse(directory: RunDirectory, strategy: Strategy) -> None:
    with RunReader(directory) as reader:
        if reader.info().get("state") == "finished":
            raise RunError(f"{directory.path} is finished; there is nothing to join")
    if not is_elastic(strategy):
        raise RunError(
            f"{directory.path} trains with workers that are fixed; accepted: a run with strategy.exchange=server and "
            "strategy.consistency=backup, ssp or async"
        )


def _places(directory: RunDirectory, meeting: Meeting, workers: int) -> list[int]:
    """Ask the run's server for places for so many workers; their ranks."""
    hello = {"workers": workers}
    try:
        with Connection.open(
            meeting.host, meeting.port, directory.key(), "door", hello, meeting.server_life, ANSWER_TIMEOUT_S
        ) as connection:
            answer = connection.receive(ANSWER_TIMEOUT_S)
    except (ConnectionLost, KeyRefused, OtherLife, TimeoutError) as error:
        raise RunError(f"{directory.path}: its server at {meeting.address} does not answer: {error}") from None
    if "refused" in answer:
        raise RunError(f"{directory.path} cannot be joined: {answer['refused']}")
    return list(answer["ranks"])


def _wait(processes: Processes, workers: int) -> list[Exited]:
    exits: list[Exited] = []
    leaving = False
    with Interrupts() as asked:
        while len(exits) < workers:
            if asked.count > 1:
                raise Stopped("stopped at once; the run goes on without these workers")
            if asked.count and not leaving:
                leaving = True
                processes.ask_to_end()
            exits += processes.events()
            asked.wait(LOOK_S)
    return exits


def _conclude(directory: RunDirectory, life: int, exits: Sequence[Exited]) -> bool:
    """Whether the run has ended. Raises what became of the first of them that did not end well, if there is one."""
    ended = False
    for gone in exits:
        if gone.signal == signal.SIGTERM:
            continue  # asked to leave before it had begun
        verdict = read_verdict(directory.verdicts, gone.rank, life)
        log = directory.log(gone.rank)
        if (verdict is None or verdict.outcome == "peer_lost") and _ended_well(directory):
            ended = True  # before this worker had begun
            continue
        if verdict is None:
            raise with_log(WorkerLost(f"rank {gone.rank} {exit_words(gone)}"), log)
        if verdict.outcome == "peer_lost":
            raise with_log(WorkerLost(f"rank {gone.rank}: {verdict.reason}"), log)
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
