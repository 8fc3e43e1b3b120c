"""The driver's services for the processes of an attempt: board, heartbeats, files, places for more workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from functools import partial

from volary.comm.control.board import Board
from volary.comm.control.sealing import Security
from volary.comm.control.server import KeyedServer
from volary.comm.control.service import Reception, Replies, Service
from volary.comm.files.messages import SERVICE
from volary.comm.files.receiver import FileReceiver
from volary.driver.attempt.members import TrainingMembers, too_many, why_not_more
from volary.driver.heartbeats import HeartbeatService
from volary.driver.requests import pass_on, written_down
from volary.driver.server_group import ServerGroup
from volary.driver.servers.addresses import SERVICE as ADDRESSES
from volary.driver.servers.addresses import AddressService
from volary.driver.servers.invited import InvitationService
from volary.driver.servers.joining import JoinService
from volary.driver.watching.failure_detector import FailureDetector
from volary.run.checkpoints import Checkpoints
from volary.run.control.requests import LeaveRun, take
from volary.run.database.journal import Journal
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.run.launch.invitation import SERVICE as INVITATION
from volary.run.launch.meeting import Meeting


class AttemptServices:
    """Called from the driver's thread; heartbeats and `keepers` are called in the thread of the keyed server.

    counts: called when a checkpoint counts whose files have come from processes that do not see the run's directory.
    why_closed: a sentence why nobody can join (any more), or an empty one. host: where it listens. security: what is
    encrypted there.
    """

    def __init__(
        self,
        directory: RunDirectory,
        watch: FailureDetector,
        keepers: ServerGroup,
        journal: Journal,
        counts: Callable[[Checkpoints], None],
        why_closed: Callable[[], str],
        host: str,
        security: Security,
    ) -> None:
        self._directory, self._keepers, self._journal = directory, keepers, journal
        without, served = keepers.without if keepers.elastic else None, "roster" in keepers.services
        training = range(watch.world_size - watch.rules.spares)
        between, own_loop = watch.rules.between, watch.rules.own_loop
        meet_again = keepers.elastic and keepers.lock_step
        members = TrainingMembers(training, between, spares_join=own_loop) if meet_again else None
        begun_with = _begun_with(directory)
        self._hub = HeartbeatService(
            watch, journal, without, keepers.left, begun_with, servers=served, members=members, each=keepers.each
        )
        self._files = FileReceiver(directory, counts, lambda kind, step, data: journal.event(kind, None, step, **data))

        def closed(workers: int) -> str:
            now = watch.staying
            gathers = "its driver has just taken a lost one's place, and its workers have yet to come"
            why = why_closed() or (gathers if self._hub.gathers else "") or too_many(now, workers, watch.rules.between)
            return why or (why_not_more(directory, now, workers) if members else "")

        door = JoinService(watch, closed, keepers.expect, spare=members is not None)
        services: dict[str, Service | Reception] = {
            SERVICE: self._files.reception,
            "pulse": self._hub,
            "board": Board(),
            "door": door,
            INVITATION: InvitationService(door, directory.key()),
        }
        services |= dict(keepers.services)
        services[ADDRESSES] = AddressService(lambda: self._server.peer_addresses())
        self._server = KeyedServer(directory.key(), services, host, security=security)

    def start(self) -> Meeting:
        """Listen; returns where workers and servers meet."""
        self._server.start()
        return Meeting(*self._server.address, self._journal.attempt, self._server.attempt_id)

    def finish(self) -> None:
        """Bring the run to an end after the current work."""
        self._server.call_soon(self._finish)

    def pass_on_requests(self, reached: Callable[[], int]) -> None:
        """Write down what the run has been asked to do, and pass it on. reached: gives the newest step of a worker."""
        for request in take(self._directory, self._journal.attempt):
            if isinstance(request, LeaveRun):
                self._server.call_soon(partial(self._hub.leave, request))
            elif written_down(self._directory, request, self._journal, reached()):
                self._server.call_soon(partial(pass_on, request, self._hub, self._keepers))

    def fell(self, fled: Mapping[int, str]) -> None:
        """Note that these workers have ended without a word, each with what is known of it; the run goes on."""
        self._server.call_soon(lambda: self._hub.fell(fled))

    def observed(self, looked_at: Collection[int], working: Collection[int]) -> None:
        """The processes of these workers were looked at, as they do not beat; some are working."""
        self._server.call_soon(lambda: self._hub.observed(looked_at, working))

    def end(self, reason: str) -> None:
        """Tell all who are still there that the run is over, and why."""
        self._server.call_soon(lambda: self._hub.end(reason))

    def stop(self) -> None:
        """Listen no more; what files have come are on the disk."""
        self._server.stop()
        self._files.close()

    def _finish(self) -> Replies:
        replies = self._keepers.finish(time.monotonic())
        return self._hub.finish() if replies is None else replies


def _begun_with(directory: RunDirectory) -> str:
    """The facts that the run has noted of its data, if it has a checkpoint that was learnt from it."""
    if not Checkpoints(directory.checkpoints).steps():
        return ""
    with RunReader(directory) as reader:
        return reader.info().get("data_names", "")
