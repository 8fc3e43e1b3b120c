"""Makes one message of verdicts, exits and silences: who failed first, and why.

The message is stored in the run, so no path is in it. What depends on where the user is (the log, the command that
resumes) is a note of the error, which is printed below it.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from volary.driver.ending import Ending
from volary.driver.server_group import NoServers, ServerGroup
from volary.driver.watching.failure_detector import FailureDetector, LostWorker
from volary.driver.watching.waiting import left_early, ranks
from volary.driver.watching.worker_status import STARTING, WorkerStatus
from volary.engine._base import Ended, Exited
from volary.errors import (
    BadInput,
    NotFinite,
    NotSaved,
    ProgramEnded,
    RanksDiffer,
    ServerLost,
    VolaryError,
    WorkerFailed,
    WorkerLost,
)
from volary.errors.raised import shown
from volary.monitor.ended.advice import advice
from volary.run.directory import RunDirectory
from volary.run.verdict import Verdict, read_verdict

_Error = TypeVar("_Error", bound=VolaryError)

TAIL_LINES = 28
_BY_CODE: dict[int, type[VolaryError]] = {
    kind.exit_code: kind for kind in (BadInput, RanksDiffer, NotFinite, NotSaved, WorkerFailed, WorkerLost)
}


def read_verdicts(directory: RunDirectory, watch: FailureDetector, attempt: int) -> dict[int, Verdict]:
    """Read what each worker said of its own end; those that said nothing are absent.

    The file is the truth, and the goodbye stands in for one that a full disk did not take.
    """
    found = {
        rank: read_verdict(directory.verdicts, rank, attempt) or seen.goodbye for rank, seen in watch.workers.items()
    }
    return {rank: verdict for rank, verdict in found.items() if verdict is not None}


def judge(
    directory: RunDirectory,
    watch: FailureDetector,
    exits: Sequence[Exited],
    verdicts: Mapping[int, Verdict],
    keepers: ServerGroup | None = None,
    *,
    launcher: Ended | None = None,
    worker_first: bool = False,
) -> Ending:
    """How the run ended. Raises the error that the command should end with, its message to be printed last.

    exits: of workers that ended before the driver stopped any. The verdict decides, not the exit code: none means lost.
    launcher: how that of the workers ended, if it did by itself. worker_first: a worker was given up while all servers
    were there: how they ended is a consequence.
    """
    keepers = keepers or NoServers()
    own = [verdict for verdict in verdicts.values() if watch.is_cause(verdict)]
    step = keepers.steps(max((verdict.step for verdict in verdicts.values()), default=0))
    if own:
        raise _own_error(directory, watch, own, verdicts, begun=keepers.begun(step))
    if keepers.corrupt:
        raise noted(WorkerFailed(keepers.corrupt), directory, fixed_first=True)
    if keepers.refusal:
        raise BadInput(keepers.refusal)
    if not worker_first and (account := keepers.account()):
        also = [lost for lost in watch.lost if lost.rank not in verdicts]
        words = [f"  rank {lost.rank} {_what_happened(lost, exits, verdicts)}" for lost in also]
        raise noted(ServerLost("\n".join([*account.lines, *words])), directory, account.log)
    if keepers.unsaved:
        raise noted(NotSaved(keepers.unsaved), directory)
    if keepers.elastic and keepers.lock_step:
        return _by_those_left(directory, watch, exits, verdicts)
    if keepers.elastic or keepers.outcome:  # what they have ended is saved, whoever of the workers did not see it
        return _by_roster(directory, watch, exits, verdicts, keepers)
    if launcher is not None and (sentence := _with_launcher(watch, launcher, verdicts)):
        raise noted(WorkerLost(sentence), directory, launcher.log)
    if alone := [verdict for verdict in verdicts.values() if verdict.outcome == "stopped" and verdict.reason]:
        raise noted(WorkerLost(_without_driver(alone[0])), directory)
    if (left := _left_early(watch, exits, verdicts)) is not None:
        raise noted(RanksDiffer(_who_left(watch, left)), directory, directory.log(left.rank))
    lost = _lost(watch, exits, verdicts)
    if lost is not None:
        message = _lost_message(directory, watch, lost, exits, verdicts)
        raise noted(WorkerLost(message), directory, _log_of(directory, lost.rank))
    broken = [v for v in verdicts.values() if v.outcome == "peer_lost"]
    if broken or len(verdicts) < watch.world_size:
        if launcher is not None and launcher.code:  # it ended before the end of a worker was seen
            raise noted(WorkerLost(_ended_with(watch, launcher)), directory, launcher.log)
        reason = broken[0].reason if broken else "not every worker left a verdict"
        raise noted(WorkerLost(reason), directory)
    if all(verdict.outcome == "finished" for verdict in verdicts.values()):
        return Ending(directory, "finished", step)
    return _stopped(directory, step)


def _with_launcher(watch: FailureDetector, launcher: Ended, verdicts: Mapping[int, Verdict]) -> str:
    """Say that the launcher ended the run, if it did: it was killed, or it started nobody."""
    unfinished = [rank for rank in watch.workers if rank not in verdicts or verdicts[rank].outcome != "finished"]
    if launcher.signal is not None and unfinished:
        return _ended_with(watch, launcher)
    absent = [worker for worker in watch.workers.values() if not worker.pid and worker.rank not in verdicts]
    if not absent:
        return ""
    words = f"{_named(launcher)} before {ranks(absent)} joined the run"
    return "\n".join([words, *indented(tail(launcher.log, TAIL_LINES))])


def _ended_with(watch: FailureDetector, launcher: Ended) -> str:
    step = max(worker.step for worker in watch.workers.values())
    words = f"{_named(launcher)}, and its workers ended with it; last step {step}"
    printed = [] if launcher.signal is not None else tail(launcher.log)  # one that was killed did not say why
    return "\n".join([words, *indented(printed)])


def _named(launcher: Ended) -> str:
    return f"{launcher.launcher} (host {socket.gethostname()}, process {launcher.pid}) {exit_words(launcher)}"


def _by_roster(
    directory: RunDirectory,
    watch: FailureDetector,
    exits: Sequence[Exited],
    verdicts: Mapping[int, Verdict],
    keepers: ServerGroup,
) -> Ending:
    """How a run ended whose roster says so, whoever of its workers saw that; an elastic one may lack all of them.

    Raises WorkerLost then.
    """
    step = keepers.steps(max((verdict.step for verdict in verdicts.values()), default=0))
    if keepers.outcome in ("finished", "thawed"):
        return Ending(directory, keepers.outcome, step)
    if keepers.outcome == "stopped":
        return _stopped(directory, step)
    raise _nobody_left(directory, watch, exits, verdicts)


def _by_those_left(
    directory: RunDirectory, watch: FailureDetector, exits: Sequence[Exited], verdicts: Mapping[int, Verdict]
) -> Ending:
    """How a run ended whose workers keep step, by those that have trained on without the others.

    Raises WorkerLost if nobody has.
    """
    spare = {worker.rank for worker in watch.workers.values() if worker.spare}
    gone = {rank for rank, one in verdicts.items() if watch.workers[rank].dismissed or one.outcome == "left"}
    last = [one for rank, one in verdicts.items() if rank not in gone | spare]
    if not last or any(verdict.outcome not in ("finished", "stopped") for verdict in last):
        raise _nobody_left(directory, watch, exits, verdicts)
    if alone := [verdict for verdict in last if verdict.outcome == "stopped" and verdict.reason]:
        raise noted(WorkerLost(_without_driver(alone[0])), directory)
    step = max(verdict.step for verdict in last)
    finished = all(verdict.outcome == "finished" for verdict in last)
    return Ending(directory, "finished", step) if finished else _stopped(directory, step)


def _nobody_left(
    directory: RunDirectory, watch: FailureDetector, exits: Sequence[Exited], verdicts: Mapping[int, Verdict]
) -> WorkerLost:
    if not watch.lost:
        return noted(WorkerLost("all workers have left the run"), directory)
    last = watch.lost[-1]
    message = f"no worker is left\n{_lost_message(directory, watch, last, exits, verdicts)}"
    return noted(WorkerLost(message), directory, _log_of(directory, last.rank))


def _stopped(directory: RunDirectory, step: int) -> Ending:
    return Ending(directory, "stopped", step, f"stopped after step {step}")


def _without_driver(first: Verdict) -> str:
    """Say how workers ended that did without this process, which was stopped or could not be reached."""
    who = f"rank {first.rank} (host {first.host}, process {first.pid})"
    return f"{who} ended after step {first.step}: {first.reason}\n  the others ended with it"


def _own_error(
    directory: RunDirectory,
    watch: FailureDetector,
    own: list[Verdict],
    verdicts: Mapping[int, Verdict],
    *,
    begun: bool,
) -> VolaryError:
    """The error of the first rank whose own code failed; equal ones are counted, others are named.

    begun: this attempt of the run has made steps.
    """
    first = min(own, key=lambda verdict: (verdict.step, not verdict.place, verdict.rank))
    if first.status is not None:
        called = first.outcome != "refused"
        return ProgramEnded(f"{first.reason}\n{_where(first)}" if called else first.reason, first.status, begun=called)
    kind = _BY_CODE.get(first.exit_code, WorkerFailed)
    if not first.frames:
        # an error of ours is a whole sentence, and the same on every rank that found it
        # a sample in the middle of the data may be the first that cannot be used: something was begun
        if kind is BadInput and begun:
            return noted(WorkerFailed(f"{first.reason}\n{_where(first)}"), directory, fixed_first=True)
        if kind is NotFinite and first.step and "at step" not in first.reason:  # a gradient that no codec can encode
            return noted(kind(f"{first.reason}\n{_where(first)}"), directory)
        # one that was found before the first step leaves nothing to resume
        return noted(kind(first.reason), directory) if first.step or kind is NotFinite else kind(first.reason)
    same = [v for v in own if v is not first and v.reason == first.reason]
    lines = [
        str(error_of(first)),
        *([f"  {len(same)} other rank{'s' * (len(same) > 1)} ended with the same error"] if same else []),
        *(f"  rank {v.rank} failed too: {v.reason}" for v in own if v is not first and v not in same),
        *_consequences(watch, verdicts, {first.rank}),
    ]
    log = directory.log(first.rank)
    return noted(kind("\n".join(lines)), directory, log, "whole traceback" if first.place else "log", fixed_first=True)


def error_of(verdict: Verdict) -> VolaryError:
    """A worker's own error, with the user's frames if it came out of their code; nothing of the others."""
    kind = _BY_CODE.get(verdict.exit_code, WorkerFailed)
    return kind("\n".join([verdict.reason, _where(verdict), *indented(verdict.frames[-TAIL_LINES:])]))


def _where(verdict: Verdict) -> str:
    return f"  rank {verdict.rank} (host {verdict.host}) at step {verdict.step + 1}, in {verdict.phase}"


def _lost(watch: FailureDetector, exits: Sequence[Exited], verdicts: Mapping[int, Verdict]) -> LostWorker | None:
    """The first worker that went without a word."""
    for lost in watch.lost:
        if lost.rank not in verdicts or verdicts[lost.rank].outcome == "peer_lost":
            return lost
    for gone in exits:
        if gone.rank not in verdicts:
            return LostWorker(gone.rank, "died", "died")
    return None


def _left_early(watch: FailureDetector, exits: Sequence[Exited], verdicts: Mapping[int, Verdict]) -> LostWorker | None:
    """The first worker that has left the user's loop while others waited for it there, if nobody was lost before.

    Or one of those that wait in different calls.
    """
    if watch.lost and watch.lost[0].kind in ("left", "parted"):
        return watch.lost[0]
    finished = [verdict for verdict in verdicts.values() if verdict.outcome == "finished"]
    broken = [watch.workers[v.rank] for v in verdicts.values() if v.outcome == "peer_lost"]
    if not watch.rules.own_loop or not finished or _lost(watch, exits, verdicts) is not None:
        return None
    first = min(finished, key=lambda verdict: verdict.step)
    waiting = [worker for worker in broken if verdicts[worker.rank].step >= first.step]
    return LostWorker(first.rank, "left", left_early(first.step, waiting)) if waiting else None


def _who_left(watch: FailureDetector, lost: LostWorker) -> str:
    worker = watch.workers[lost.rank]
    return f"rank {lost.rank}{worker.who} {lost.sentence}"


def _lost_message(
    directory: RunDirectory,
    watch: FailureDetector,
    lost: LostWorker,
    exits: Sequence[Exited],
    verdicts: Mapping[int, Verdict],
) -> str:
    worker = watch.workers[lost.rank]
    others = [more for more in watch.lost if more.rank != lost.rank]
    # one that died with the first is a consequence, unless the run went on without it
    also = [more for more in others if more.kind != "died" or watch.workers[more.rank].dismissed]
    # the stack of a standstill that ended well, or of the start, is no evidence of anything else
    stack = worker.stack if lost.kind == "stuck" else ""
    shown = stack.splitlines()[-TAIL_LINES:] or tail(_log_of(directory, lost.rank))
    lines = [
        f"rank {lost.rank}{worker.who} {_what_happened(lost, exits, verdicts)}; {_how_far(worker)}",
        *indented(shown),
        *(f"  rank {more.rank} {more.sentence}" for more in also),
        *_consequences(watch, verdicts, {lost.rank, *(more.rank for more in also)}),
    ]
    return "\n".join(lines)


def _log_of(directory: RunDirectory, rank: int) -> Path:
    """A worker's own; of one that never came to write it that of the launcher which was to start it."""
    own = directory.log(rank)
    launchers = [log for log in directory.logs.glob("*-workers.log") if log.stat().st_size]
    return own if own.exists() or not launchers else max(launchers, key=lambda log: log.stat().st_mtime)


def _what_happened(lost: LostWorker, exits: Sequence[Exited], verdicts: Mapping[int, Verdict]) -> str:
    if lost.kind != "died":
        return lost.sentence
    if lost.rank in verdicts:
        return verdicts[lost.rank].ended
    gone = next((gone for gone in exits if gone.rank == lost.rank), None)
    if gone is None:
        return lost.sentence
    return exit_words(gone) + (" without reporting a reason" if gone.signal is None else "")


def _how_far(worker: WorkerStatus) -> str:
    """How far it was when it was last heard of."""
    if not worker.pid:
        return "before it joined the run"
    if not worker.step and worker.phase == STARTING:
        return "before its first step, while starting"
    return f"last step {worker.step}, in {worker.phase} by its last heartbeat"


def exit_words(gone: Exited | Ended) -> str:
    """Say how a process ended, without its name."""
    if gone.signal is None:
        return f"exited with status {gone.code}"
    starved = isinstance(gone, Exited) and gone.out_of_memory
    return f"was killed by {_signal_name(gone.signal)}{', out of memory' if starved else ''}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name here
        return f"signal {number}"


def _consequences(watch: FailureDetector, verdicts: Mapping[int, Verdict], causes: set[int]) -> list[str]:
    """One line for the ranks that went down with the first: they lost their peer, or were ended before they saw it."""
    own = {rank for rank, verdict in verdicts.items() if verdict.outcome != "peer_lost"}
    ranks = [str(rank) for rank in watch.workers if rank not in causes | own]
    return [f"  rank {', '.join(ranks)} ended because of it"] if ranks else []


def indented(lines: Sequence[str]) -> list[str]:
    """The text of another process, indented inside a message."""
    return [f"  | {line}" for line in lines]


def tail(log: Path, most: int = 8) -> list[str]:
    """The last lines that a process printed."""
    try:
        return log.read_text(errors="replace").splitlines()[-most:]
    except OSError:
        return []


def with_log(error: _Error, log: Path, called: str = "log") -> _Error:
    """The error, and below it where to read more, if that is here."""
    if log.exists():
        error.add_note(f"{called}: {shown(str(log))}")
    return error


def noted(
    error: _Error, directory: RunDirectory, log: Path | None = None, called: str = "log", *, fixed_first: bool = False
) -> _Error:
    """The error, and below it where to read more and how to resume.

    log: of whom the message is about; a launcher keeps the output of workers that it started. fixed_first: what
    happened will happen again, until the user has changed something.
    """
    if log is not None:
        with_log(error, log, called)
    for line in advice(directory, type(error).__name__, str(error)):
        error.add_note(f"once that is fixed, {line}" if fixed_first and not isinstance(error, NotFinite) else line)
    return error
