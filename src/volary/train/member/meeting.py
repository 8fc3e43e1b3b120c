"""Workers that a launcher started find their run: rank 0 opens it and posts its address, the others read that.

A launcher's own store (torchrun's agent keeps one) is open to everyone who reaches its port, outlives the workers, and
still holds what a dead attempt has posted. So nothing in it is believed but an address, and that only if a run of this
user's, in the folder that this rank's own session names, says that it meets there and its server proves that run's
key. Which run a restarted rank 0 goes on with stands in the run's directory, not in the store. A file that the ranks
inherit (a lab's) is nobody else's: it names the run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec

from volary.errors import BadInput, PeerLost, RunError, Stopped, VolaryError, WorkerLost
from volary.placement import Place
from volary.run.directory import RunDirectory
from volary.run.launch.file_board import FileBoard
from volary.run.launch.launched import is_stopped_by_user, launched_by
from volary.run.launch.meeting import Meeting, announced
from volary.run.machine.addresses import address_towards
from volary.run.owner import refuse_foreign, require_private
from volary.run.resuming import resuming
from volary.session.script import Script
from volary.session.spec import RunSettings, Session
from volary.train.member.process import Membership

MEET_TIMEOUT_S = 120.0
ANSWER_TIMEOUT_S = 10.0  # of a launcher's store
AGAIN_S = 0.1
LOOPBACK = "127.0.0.1"
ENTRY = "volary/meet"  # an Address, as JSON
RUN = "volary/run"  # in a file of the ranks' own: the run's directory; one that is there before them is gone on with


class Address(msgspec.Struct, forbid_unknown_fields=True):
    """The address of the run's server, as rank 0 posts it."""

    host: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]


@contextmanager
def meet_for_session(
    place: Place, session_file: Path, overrides: Sequence[str], *, trust: bool = False
) -> Iterator[Membership]:
    """Be a member of the run of `session_file`. Raises BadInput, and PeerLost if nobody opens the run in time.

    trust: the session file may be another user's.
    """
    refuse_foreign(session_file, trust=trust)
    overrides = [*overrides, f"strategy.workers={place.world_size}"]
    session = Session.read(session_file, overrides)
    with _met(place, session.run, {"session": str(session_file), "overrides": overrides}) as member:
        yield replace(member, session=session)


@contextmanager
def meet_for_program(
    place: Place, program: str, arguments: Sequence[str], overrides: Sequence[str] = ()
) -> Iterator[tuple[Membership, Script]]:
    """Be a member of the run of a program, as `Script.of_program` takes it. Raises as `meet_for_session`."""
    overrides = [*overrides, f"strategy.workers={place.world_size}"]
    script = Script.of_program(program, arguments, overrides)
    wish = {"program": script.program, "arguments": script.arguments, "overrides": overrides}
    with _met(place, script.run, wish) as member:
        yield member, script


@contextmanager
def _met(place: Place, run: RunSettings, wish: dict[str, Any]) -> Iterator[Membership]:
    """wish: what the host is to read."""
    board = _board(place)
    if place.leads:
        with _hosted(wish, run, place, board) as member:
            yield member
    else:
        yield _found(place, run, board)


@contextmanager
def _hosted(wish: dict[str, Any], run: RunSettings, place: Place, board: Any) -> Iterator[Membership]:
    """Rank 0: have the run made, or gone on with after an earlier attempt, and driven by a process of its own.

    What the run came to is known there: raises SystemExit with that process's status if all was not well, so that the
    launcher's command has the status that `volary train` would have.
    """
    if board is not None:
        board.delete_key(ENTRY)  # of an earlier attempt
    again = _again(place, run, board)
    known: dict[str, Any] = {"run": str(again.path)} if again else wish
    known |= {"address": place.address, "launch": place.launch, "hosts": place.hosts}
    command = [sys.executable, "-m", "volary.driver.host"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as host:
        # standard input stays open as a leash: when this process goes, however it goes, the host sees the end of it
        assert host.stdin is not None and host.stdout is not None
        host.stdin.write(json.dumps(known).encode() + b"\n")
        host.stdin.flush()
        line = host.stdout.readline()
        if not line:
            raise BadInput("the run could not be opened; the reason stands above")
        announced = json.loads(line)
        directory, meeting = RunDirectory(announced.pop("run")), Meeting(**announced)
        if place.meet_file is not None:
            board.set(RUN, str(directory.path))
        if board is not None:
            board.set(ENTRY, json.dumps({"host": meeting.host, "port": meeting.port}))
        yield _member(place, directory, meeting)
    if host.returncode:
        sys.exit(host.returncode if host.returncode > 0 else WorkerLost.exit_code)


def _again(place: Place, run: RunSettings, board: Any) -> RunDirectory | None:
    """The run to go on with, if this is not its first attempt."""
    if place.meet_file is not None:
        return RunDirectory(board.get(RUN).decode()) if board.check([RUN]) else None
    found = next(_of_launch(place, run), None) if place.restarts else None
    if found is not None and place.attempt and is_stopped_by_user(found):
        raise Stopped(f"{found.path} was stopped by its user: no restart goes on with it\n{resuming(found)}")
    return found


def _found(place: Place, run: RunSettings, board: Any) -> Membership:
    """Any other rank: read the address until it leads to a server that has a place for us."""
    deadline = time.monotonic() + MEET_TIMEOUT_S
    trouble: Exception | None = None
    while time.monotonic() < deadline:
        try:
            if board is None:
                return _by_launch(place, run)
            if board.check([ENTRY]):
                return _at(place, run, board, msgspec.json.decode(board.get(ENTRY), type=Address))
        except (VolaryError, RuntimeError, msgspec.MsgspecError) as error:  # torch's stores raise RuntimeError
            trouble = error
        time.sleep(AGAIN_S)
    raise PeerLost(f"rank 0 opened no run within {MEET_TIMEOUT_S:.0f} s" + (f" (last: {trouble})" if trouble else ""))


def _at(place: Place, run: RunSettings, board: Any, address: Address) -> Membership:
    """A place in the run that says itself that it meets there, and whose server proves it."""
    runs = _own_runs(run) if place.meet_file is None else iter([RunDirectory(board.get(RUN).decode())])
    for directory in runs:
        meeting = announced(directory)
        if meeting is not None and (meeting.host, meeting.port) == (address.host, address.port):
            require_private(directory.path / "key", secret=True)
            return _member(place, directory, meeting)
    raise RunError(f"no run of yours in {Path(run.folder).absolute()} meets at {address.host}:{address.port}")


def _by_launch(place: Place, run: RunSettings) -> Membership:
    """A place in the run that rank 0 of the same launch has opened. Raises VolaryError if there is none (yet)."""
    trouble: VolaryError | None = None
    for directory in _of_launch(place, run):
        meeting = announced(directory)
        if meeting is not None:
            require_private(directory.path / "key", secret=True)
            here = place if place.address == LOOPBACK else replace(place, address=address_towards(meeting.host))
            try:
                return _member(here, directory, meeting)
            except VolaryError as error:  # of an earlier launch that was called the same, perhaps
                trouble = error
    raise trouble or RunError(f"no run of yours in {Path(run.folder).absolute()} is of this launch")


def _of_launch(place: Place, run: RunSettings) -> Iterator[RunDirectory]:
    return (one for one in _own_runs(run) if place.launch and launched_by(one, place.launch))


def _own_runs(run: RunSettings) -> Iterator[RunDirectory]:
    """The runs that it may be: of its name, or, without one, all in its folder, and nobody else's."""
    folder = Path(run.folder)
    for directory in RunDirectory.all_in(folder) if run.name is None else [RunDirectory(folder / run.name)]:
        with suppress(RunError, OSError):
            require_private(directory.path)
            yield directory


def _member(place: Place, directory: RunDirectory, meeting: Meeting) -> Membership:
    return Membership.claim(replace(place, attempt=meeting.attempt), directory, meeting)


def _board(place: Place) -> Any:
    """The launcher's store, as a client; or the file that takes its place; None if there is neither."""
    if not place.meet:
        return None
    if place.meet_file is not None:
        require_private(place.meet_file)
        return FileBoard(place.meet_file)
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch exports it untyped

    host, port = place.meet_at
    store = TCPStore(host, port, is_master=False, timeout=timedelta(seconds=MEET_TIMEOUT_S))
    store.set_timeout(timedelta(seconds=ANSWER_TIMEOUT_S))
    return store
