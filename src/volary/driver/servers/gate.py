"""Keeps the gate of a run: a process beside the run, through which workers elsewhere reach all of it."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress

import msgspec

from volary.comm.control.connection import Connection
from volary.comm.control.errors import ConnectionLost, KeyRefused, OtherAttempt
from volary.comm.control.handshake import key_of
from volary.comm.relay.gate import Gate
from volary.comm.relay.messages import End
from volary.driver.interrupts import Interrupts
from volary.driver.servers.addresses import SERVICE as ADDRESSES
from volary.driver.servers.join import require_joinable
from volary.driver.tasks.task import task_of
from volary.errors import BadInput, RunError
from volary.run.directory import RunDirectory
from volary.run.launch.meeting import announced, found
from volary.run.launch.way import GUEST, Way, announced_way

LOOK_S = 0.5
ANSWER_TIMEOUT_S = 10.0
LOOPBACK = "127.0.0.1"


def keep_gate(
    directory: RunDirectory, listen: End, public: End, relay: Way | None, opened: Callable[[Way], object]
) -> None:
    """Keep it until the run has ended, or Ctrl-C. Raises RunError if nobody can join the run, BadInput if `listen` is
    no address of this machine or taken, or the relay cannot be reached.

    listen: where, with a relay on loopback. public: where others reach that. opened: called with the way, once it is
    there.
    """
    require_joinable(directory, task_of(directory).strategy)
    addresses = _Addresses(directory)
    addresses.ask()
    gate = Gate(directory.key(), addresses.meeting, addresses.known, *listen)
    name = secrets.token_hex(16)
    way = (
        Way(*public)
        if relay is None
        else msgspec.structs.replace(relay, gate=name, key=key_of(relay.key, f"{GUEST}/{name}"))
    )
    with announced_way(directory, way):
        try:
            gate.start()
        except OSError as error:
            raise BadInput(f"--listen {listen[0]}:{listen[1]}: {error.strerror or error}") from None
        try:
            if relay is not None:
                _meet(gate, msgspec.structs.replace(relay, gate=name))
            opened(way)
            with Interrupts() as asked:
                while directory.is_live() and not asked.count:
                    asked.wait(LOOK_S)
        finally:
            gate.close()


def _meet(gate: Gate, relay: Way) -> None:
    try:
        gate.meet(relay)
    except KeyRefused:
        raise BadInput(f"{relay.words} is another one, or has started anew; accepted: its newest token") from None
    except ConnectionLost as error:
        raise BadInput(f"{relay.words} cannot be reached: {error}") from None


class _Addresses:
    """Which addresses are the run's, as its server says."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory, self._known = directory, frozenset[str]()

    def meeting(self) -> End:
        """Where the run's server is at this moment."""
        meeting = announced(self._directory)
        return (meeting.host, meeting.port) if meeting else (LOOPBACK, 9)  # where nobody is

    def known(self, host: str) -> bool:
        """Whether a machine of the run has this address."""
        if host not in self._known:
            with suppress(RunError):
                self.ask()
        return host in self._known

    def ask(self) -> None:
        """Ask the run's server. Raises RunError if it does not answer."""
        meeting, key = found(self._directory), self._directory.key()
        try:
            with Connection.open(
                meeting.host, meeting.port, key, ADDRESSES, {}, meeting.attempt_id, ANSWER_TIMEOUT_S
            ) as connection:
                answer = connection.receive(ANSWER_TIMEOUT_S)
        except (ConnectionLost, KeyRefused, OtherAttempt, TimeoutError) as error:
            raise RunError(
                f"{self._directory.path}: its server at {meeting.address} does not answer: {error}"
            ) from None
        self._known = frozenset(answer["addresses"]) | {meeting.host}
