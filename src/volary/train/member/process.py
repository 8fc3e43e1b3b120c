"""The process around a worker's job: it beats while it works, and leaves a verdict whatever happens."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from volary.comm.control.connection import Connection
from volary.comm.control.errors import ConnectionLost
from volary.comm.files.client import FileClient
from volary.errors import (
    BadInput,
    PeerLost,
    ProgramEnded,
    RanksDiffer,
    RunError,
    SettingError,
    VolaryError,
    WorkerFailed,
)
from volary.errors.raised import raised
from volary.run.checkpoints import Checkpoints
from volary.run.directory import RunDirectory
from volary.run.launch.meeting import Meeting
from volary.run.launch.members import GroupMembers, TrainingReport
from volary.run.launch.parent import outlive_parent
from volary.run.log import VERDICT_BELOW
from volary.run.resuming import resuming
from volary.run.verdict import Outcome, Verdict
from volary.sharding.groups import leads
from volary.train.member.current_driver import CurrentDriver
from volary.train.member.pulse import Pulse, leave_now
from volary.train.recording.recorder import Recorder
from volary.train.recording.usage import UsageSamples
from volary.train.recovery.next_group import NextGroup

if TYPE_CHECKING:
    from volary.placement import Place
    from volary.session.spec import Session
    from volary.train.member.remote_directory import RemoteDirectory

CONNECT_TIMEOUT_S = 15.0
AGAIN_TIMEOUT_S = 2.0  # of an attempt to have a connection again
NO_MORE: Mapping[str, Any] = {}
SEND_TIMEOUT_S = 1.0  # a driver that reads nothing for so long is stopped


@dataclass(frozen=True, kw_only=True)
class Membership:
    """A place in a run: who am I, which run is it, and where is its server.

    driver: where the server is, whose process is the driver. connection: to it, beside the data path. give_up_after_s:
    of silence, until the driver counts as lost; wait_for_driver_s: for how long another one may take its place then.
    session: the one that this rank was started with, where each rank brings its own; ranks compare them. remote: the
    run's own directory, if this machine does not see it. begun_with: the run's fact `data_names`, if it is resumed from
    a checkpoint. over_servers: whether servers keep the run's parameters, as its driver says. joins: this worker has
    joined a run whose workers keep step. next_group: what this worker knows of the group that follows its own.
    """

    place: Place
    directory: RunDirectory
    driver: CurrentDriver
    connection: Connection
    give_up_after_s: float
    wait_for_driver_s: float = 0.0
    session: Session | None = None
    remote: RemoteDirectory | None = None
    begun_with: str = ""
    over_servers: bool = False
    joins: bool = False
    next_group: NextGroup = field(default_factory=NextGroup, compare=False)

    @property
    def meeting(self) -> Meeting:
        """Where the run meets now: its server's address, and what that proves to be."""
        return self.driver.meeting

    @classmethod
    def claim(cls, place: Place, directory: RunDirectory, meeting: Meeting) -> Membership:
        """Take a place in the run that meets there. Raises VolaryError if nobody is there, or the place is not free."""
        connection, welcome = _connected(place.rank, directory, meeting, CONNECT_TIMEOUT_S)
        return cls(
            place=place,
            directory=directory,
            driver=CurrentDriver(meeting),
            connection=connection,
            give_up_after_s=welcome["give_up_after_s"],
            wait_for_driver_s=welcome.get("wait_for_driver_s", 0.0),
            begun_with=welcome.get("begun_with", ""),
            over_servers=bool(welcome.get("servers")),
            joins=bool(welcome.get("joins")),
        )

    def files(self) -> FileClient:
        """A new connection for files of this rank. Raises VolaryError, OSError."""
        key, rank, meeting = self.directory.key(), self.place.rank, self.meeting
        return FileClient.open(meeting.host, meeting.port, key, meeting.attempt_id, "worker", rank)

    def settle(self) -> None:
        """Send what this process has printed to the driver."""
        if self.remote is not None:
            self.remote.settle()

    @property
    def has_other_driver(self) -> bool:
        """Whether a driver has taken the place of the one that this worker knows."""
        return self.wait_for_driver_s > 0 and self.driver.newer(self.directory) is not None

    def connect_again(self, report: TrainingReport) -> tuple[Connection, int]:
        """A new connection, and the number of the newest beat that the driver has. Raises VolaryError.

        report: for a driver that has taken the place of the one that was.
        """
        newer = self.driver.newer(self.directory) if self.wait_for_driver_s else None
        more = {} if newer is None else {"trains": msgspec.to_builtins(report)}
        meeting = newer or self.meeting
        connection, welcome = _connected(self.place.rank, self.directory, meeting, AGAIN_TIMEOUT_S, more)
        self.driver.meeting = meeting
        return connection, welcome["acknowledged"]

    def expect_members(self, newest: GroupMembers, requests: Sequence[Any]) -> None:
        """The driver has named these members, and passed these requests on."""
        self.next_group.expect(self, newest, requests)

    def outlive_driver(self) -> None:
        """Let this process live on when its driver ends; a launcher's process still ends with the launcher."""
        if self.place.launcher == "local":
            outlive_parent()

    def require_checkpoints(self) -> None:
        """Raise BadInput if this process sees the run, but not its checkpoints, in a folder elsewhere or in a store."""
        folder = self.directory.checkpoints
        try:
            Checkpoints(folder).steps()
        except (RunError, SettingError) as error:
            raise BadInput(f"host {socket.gethostname()}: {error}") from None
        if not folder.is_dir():
            there = folder.readlink() if folder.is_symlink() else folder
            raise BadInput(
                f"host {socket.gethostname()} does not see {there}, where checkpoint.path has the run's checkpoints; "
                "accepted: a folder that all machines see, or a run that `volary train` starts there"
            )

    def show_alive(self) -> None:
        """Let others see, without the driver, that this worker is about to end in order: the lock's time is now."""
        with contextlib.suppress(OSError):
            os.utime(self.directory.path / "lock")


def _connected(
    rank: int, directory: RunDirectory, meeting: Meeting, timeout_s: float, more: Mapping[str, Any] = NO_MORE
) -> tuple[Connection, dict[str, Any]]:
    """A connection over which this process is welcome, and the welcome. more: to say with the hello."""
    hello = {"rank": rank, "pid": os.getpid(), "host": socket.gethostname(), **more}
    host, port, key = meeting.host, meeting.port, directory.key()
    connection = Connection.open(host, port, key, "pulse", hello, meeting.attempt_id, timeout_s)
    connection.send_timeout_s = SEND_TIMEOUT_S
    try:
        answer = connection.receive(timeout_s)
    except TimeoutError:
        connection.close()
        raise ConnectionLost(f"the run's server did not answer within {timeout_s:.0f} s") from None
    except BaseException:
        connection.close()
        raise
    if "end" in answer:
        connection.close()
        raise PeerLost(answer["end"])
    return connection, answer


Job = Callable[[Membership, Recorder, Pulse], Outcome]


class Presence:
    """This process as a member of a run: it beats from here on, until it has said how it ended."""

    def __init__(self, member: Membership) -> None:
        self._member = member
        self.recorder = recorder = Recorder(member.place.rank)
        self.pulse = Pulse(member, recorder, lambda sentence: _abandon(member, recorder, sentence))
        recorder.usage = UsageSamples(whole_machine=leads(member.place.local_rank))
        recorder.usage.queues["driver"] = lambda: self.pulse.unanswered
        recorder.hand_over = self.pulse.beat
        self.pulse.start()

    def ended(self, outcome: Outcome) -> int:
        """Leave a verdict: it has ended as it should. Returns the process's exit code."""
        verdict = _verdict(self._member, self.recorder, outcome)
        if self.pulse.lost:
            # who started this process is not to take it for a run that was trained to its end
            code = 0 if outcome == "finished" else PeerLost.exit_code
            verdict = replace(verdict, reason=self.pulse.lost, exit_code=code)
            how = f"{self.pulse.lost}; {outcome} after step {self.recorder.step}"
            _print(f"{how}\n{resuming(self._member.directory)}")
        return self._leave(verdict)

    def failed(self, error: BaseException) -> int:
        """Leave a verdict: this was raised. Returns the process's exit code."""
        return self._leave(_verdict(self._member, self.recorder, _outcome_of(error), error))

    def _leave(self, verdict: Verdict) -> int:
        _keep(verdict, self._member)
        self._member.settle()
        self.pulse.stop(verdict)
        self._member.next_group.give_up()
        if self.pulse.lost:
            leave_now(
                verdict.exit_code
            )  # what is left takes its time, and nobody sees it out who knows that it is well
        return verdict.exit_code


def work(member: Membership, job: str) -> int:
    """Do a job as a member of a run, beating all the while, and leave a verdict. Returns the process's exit code.

    job: "module:function" of a `Job`; imported only once the heart beats, as torch takes its time.
    """
    present = Presence(member)
    present.recorder.starting("importing torch")

    def noticed(number: int, _frame: object) -> None:
        """A launcher's notice (Slurm's before the time limit, a preemption, torchrun's Ctrl-C): finish the step, save,
        end; of who has joined: leave, and let the others go on.
        """
        if member.joins:
            present.pulse.ask_to_leave()
        else:
            present.pulse.ask_to_end(taken_away=number == signal.SIGTERM)

    for notice in (signal.SIGTERM, signal.SIGINT):
        signal.signal(notice, noticed)
    try:
        member.require_checkpoints()
        outcome = _load(job)(member, present.recorder, present.pulse)
    except (Exception, SystemExit) as error:  # the user's code may raise anything, and it must reach the verdict
        print_whole(error)
        return present.failed(error)
    return present.ended(outcome)


def _load(job: str) -> Job:
    module, _, name = job.partition(":")
    function: Job = getattr(import_module(module), name)
    gc.freeze()  # what is imported never becomes garbage: a collection amid steps need not look at all of it
    return function


def _abandon(member: Membership, recorder: Recorder, sentence: str) -> None:
    _keep(_verdict(member, recorder, "peer_lost", PeerLost(sentence)), member)
    _print(sentence)
    member.settle()
    leave_now(PeerLost.exit_code)


def _keep(verdict: Verdict, member: Membership) -> None:
    try:
        verdict.write(member.directory.verdicts)
    except OSError as error:  # a full disk: the goodbye carries it too
        _print(f"the verdict could not be written: {error}")


def _print(text: str) -> None:
    with contextlib.suppress(OSError):  # the log lies on the same disk as all else
        print(text, file=sys.stderr, flush=True)


def print_whole(error: BaseException) -> None:
    """Into the log: an error of ours is a sentence, any other comes with its whole traceback."""
    if isinstance(error, VolaryError):
        _print(f"{VERDICT_BELOW}\n{error}")
    else:
        _print("\n".join([VERDICT_BELOW, "".join(traceback.format_exception(error))]))


def _outcome_of(error: BaseException) -> Outcome:
    if isinstance(error, (PeerLost, ConnectionLost)):  # the run's server leaves when the run is over for all
        return "peer_lost"
    early = isinstance(error, ProgramEnded) and not error.begun
    return "refused" if early or isinstance(error, (BadInput, RanksDiffer)) else "failed"


def _verdict(member: Membership, recorder: Recorder, outcome: Outcome, error: BaseException | None = None) -> Verdict:
    failure = None if error is None or isinstance(error, VolaryError) else raised(error)
    status = error.status if isinstance(error, ProgramEnded) else None
    return Verdict(
        rank=member.place.rank,
        attempt=member.meeting.attempt,
        outcome=outcome,
        step=recorder.step,
        phase=recorder.phase,
        reason=failure.sentence if failure else "" if error is None else str(error),
        place=failure.place if failure else "",
        frames=failure.lines if failure else (),
        exit_code=0 if error is None else error.exit_code if isinstance(error, VolaryError) else WorkerFailed.exit_code,
        status=status,
    )
