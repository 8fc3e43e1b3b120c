"""Workers of this machine join a run by an invitation: this machine need not see anything of the run."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from volary.comm.control.connection import Connection
from volary.comm.control.errors import ConnectionLost, KeyRefused, OtherAttempt
from volary.comm.relay.forwarder import Forwarder
from volary.comm.relay.messages import End
from volary.driver.servers.join import ANSWER_TIMEOUT_S, wait
from volary.driver.start import WORKER
from volary.driver.watching.judge import error_of, exit_words, with_log
from volary.engine._base import Exited
from volary.engine.processes.processes import NewProcess, Processes
from volary.engine.remote.messages import RemoteLaunch
from volary.errors import BadInput, RunError, WorkerLost
from volary.run.directory import RunDirectory
from volary.run.launch.assignment import SCRATCH, Assignment
from volary.run.launch.invitation import Invitation
from volary.run.verdict import ENDED_WELL, read_verdict

LOGS = "volary-logs"  # below the working directory: of workers that did not end well


def accept(invitation: Invitation, workers: int) -> list[int]:
    """Have so many workers started here, and wait until they have ended; their ranks.

    Ctrl-C lets them leave, and the run continues; twice ends them at once. Raises RunError if the run does not let them
    in, and WorkerFailed or WorkerLost if one of them did not end well.
    """
    ranks, key = _places(invitation, workers)
    assignment = Assignment(
        directory=Path(invitation.run),
        meeting=invitation.meeting,
        job=invitation.job,
        key=key,
        folder=Path(invitation.folder),
        way=invitation.way,
    )
    with tempfile.TemporaryDirectory(prefix="volary-", ignore_cleanup_errors=True) as scratch:
        exits, asked = _run(assignment, ranks, Path(scratch))
        for rank in ranks:
            home = RunDirectory(Path(scratch, f"worker-{rank}", assignment.directory.name))
            _conclude(home, invitation.attempt, rank, exits, asked=asked)
    return ranks


def _places(invitation: Invitation, workers: int) -> tuple[list[int], bytes]:
    """Ask the run's server for places for so many workers; their ranks, and the run's key."""
    at = f"the run at {invitation.host}:{invitation.port}"
    if invitation.way:
        at += f", by {invitation.way.words},"
    try:
        with (
            _reached(invitation) as (host, port),
            Connection.open(
                host,
                port,
                invitation.key,
                invitation.service,
                {"workers": workers, "host": socket.gethostname()},
                invitation.attempt_id,
                ANSWER_TIMEOUT_S,
                sealed=True,  # the run's key comes back
            ) as connection,
        ):
            answer = connection.receive(ANSWER_TIMEOUT_S)
    except KeyRefused:
        raise BadInput(
            f"{at} refuses the invitation: it was altered, or is of another run; accepted: the word that volary invite "
            "has printed"
        ) from None
    except OtherAttempt:
        raise RunError(f"{at} has started anew since the invitation; accepted: a new one, by volary invite") from None
    except (ConnectionLost, TimeoutError) as error:
        raise RunError(f"{at} does not answer: it is over, or not reached from here: {error}") from None
    if "refused" in answer:
        raise RunError(f"{at} cannot be joined: {answer['refused']}")
    return list(answer["ranks"]), bytes(answer["key"])


@contextmanager
def _reached(invitation: Invitation) -> Iterator[End]:
    """Where the run's server is reached from here. Raises ConnectionLost or KeyRefused if its gate is not."""
    end = (invitation.host, invitation.port)
    if invitation.way is None:
        yield end
        return
    through = Forwarder(invitation.way, invitation.key, invitation.service)
    try:
        through.require(end)
        yield through.to(end)
    finally:
        through.close()


def _run(assignment: Assignment, ranks: Sequence[int], scratch: Path) -> tuple[dict[int, Exited], bool]:
    """Start the workers, and wait until they have ended; how, by rank, and whether they were asked to."""
    launch = RemoteLaunch(
        role="worker",
        command=WORKER,
        variables=assignment.variables() | {SCRATCH: str(scratch), "VOLARY_DRIVER": str(os.getpid())},
        numbers=list(ranks),
        world_size=ranks[-1] + 1,
        node=0,
        folder=str(Path.cwd()),
    )
    processes = Processes()
    try:
        for rank, (command, place) in launch.commands().items():
            processes.start(rank, NewProcess(command, launch.variables | place, scratch / f"begin-{rank}.log"))
        return wait(processes)
    finally:
        processes.stop(0.0)


def _conclude(home: RunDirectory, attempt: int, rank: int, exits: Mapping[int, Exited], *, asked: bool) -> None:
    """Raise what became of a worker that did not end well."""
    gone, verdict = exits.get(rank), read_verdict(home.verdicts, rank, attempt)
    terminated = gone is not None and gone.signal == signal.SIGTERM
    if terminated or (asked and verdict is None) or (verdict is not None and verdict.outcome in ENDED_WELL):
        return
    log = _kept(home, rank)
    if verdict is None:
        words = exit_words(gone) if gone is not None else "ended without reporting a reason"
        raise with_log(WorkerLost(f"rank {rank} {words}"), log)
    if verdict.outcome == "peer_lost":
        raise with_log(WorkerLost(f"rank {rank}: {verdict.reason}"), log)
    raise with_log(error_of(verdict), log)


def _kept(home: RunDirectory, rank: int) -> Path:
    """The worker's output, in a place where it stays once its folder here is gone."""
    printed = [home.path.parents[1] / f"begin-{rank}.log", home.log(rank)]
    kept = Path(LOGS, f"{home.path.name}-worker-{rank}.log")
    kept.parent.mkdir(exist_ok=True)
    kept.write_bytes(b"".join(path.read_bytes() for path in printed if path.exists()))
    return kept
